"""What is wrong with this installation: settings, the server, the processes. `manage.py doctor` says it."""
