"""What pages, metrics and commands say of the whole system: whether all is well, and who has to act."""
