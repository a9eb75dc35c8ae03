"""What is written of a workflow: its transitions, its history, and the log of its attempts."""
