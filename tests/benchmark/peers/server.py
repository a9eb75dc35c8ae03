"""How gunicorn serves `view.py`: with the threads that our own Django view has."""

import os

worker_class = "gthread"
workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
threads = 8
backlog = 2048
keepalive = 75
control_socket_disable = True
