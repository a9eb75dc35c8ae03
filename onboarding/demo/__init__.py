"""The demo: every process of the system on this machine, realistic submissions, and a report of their outcomes."""
