"""What is recorded about a workflow: its transitions, its history, and the log of its attempts."""
