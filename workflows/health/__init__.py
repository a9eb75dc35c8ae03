"""What pages, metrics and commands say of the whole: is all well, and who has to do something."""
