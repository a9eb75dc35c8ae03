"""How gunicorn serves the intake and the console: `gunicorn config.intake`, `gunicorn config.wsgi`.

Found by its name when gunicorn starts in this folder (elsewhere: `-c .../gunicorn.conf.py`); flags override it.
"""

import os
import shutil
import socket
import struct
import sys
import tempfile
import threading
from itertools import count

# Gunicorn reads this file before it looks at the application; both were named on the same command line.
intake = any(argument.partition(":")[0] == "config.intake" for argument in sys.argv[1:])

workers = int(os.environ.get("WEB_CONCURRENCY", "2"))
if intake:
    # One thread serves all connections of a process: docs/adr/0019. Each takes a file descriptor.
    worker_class = "config.server.IntakeWorker"
    worker_connections = 1000
    asgi_loop = "uvloop"
else:
    # A request waits for the database most of its time, so threads share a core well. Each has one connection to the
    # database, and each process one more to tell idle workers: workers x (threads + 1) of its max_connections.
    worker_class = "config.server.ConsoleWorker"
    threads = 8

# Connections that wait to be accepted: a burst of clients, while a worker starts. (The kernel caps it: somaxconn.)
backlog = 2048

# Longer than a load balancer keeps its connections idle (60 s, most of them): it, not we, should close first.
keepalive = 75

# On SIGTERM, for requests under way; the longest waits for the database (workflows/postgres/deadlines.py) and is over
# by then.
graceful_timeout = 20

# Two requests of the largest headers we take; a client has no use for more.
limit_request_line = 2048
limit_request_fields = 50

# Each worker loads the project itself: nothing, and no connection to the database, is ever shared over a fork.
preload_app = False

logger_class = "config.server.Log"

# No second way in.
control_socket_disable = True

# Seconds of silence in the middle of a request, after which its thread is given to someone else.
SILENCE_SECONDS = 10
MAX_BODY_BYTES = 256 * 1024
MEMORY = "/dev/shm"  # noqa: S108 (only Linux has it)


def when_ready(server):
    """Bound every read of a client that has gone silent: accepted sockets inherit this (socket(7), SO_RCVTIMEO).

    And make the folder of what the intake's processes count (workflows/intake/metrics.py), in memory: with files on a
    disk that is full they would be killed.
    """
    for listener in server.LISTENERS:
        listener.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", SILENCE_SECONDS, 0))
    if intake:
        folder = MEMORY if os.path.isdir(MEMORY) else None
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix=f"onramp-intake-{os.getpid()}-", dir=folder)


def pre_fork(server, worker):
    """Give it the lowest number that is free: it goes on counting in the files of the one before of that number."""
    taken = {each.number for each in server.WORKERS.values()}
    worker.number = next(number for number in count() if number not in taken)


def post_fork(server, worker):
    """Name its files by that number. By process ids there would be more of them with each worker that is killed."""
    if intake:
        from prometheus_client import values

        values.ValueClass = values.MultiProcessValue(lambda: worker.number)


def child_exit(server, worker):
    """Count no longer what waited in it."""
    if intake:
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.number)


def on_exit(server):
    """Leave nothing in memory."""
    if intake:
        shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"])


def pre_request(worker, req):
    """Close the connection after a body that will be refused unread, or could be read in two ways.

    Kept open, gunicorn would first read the rest of it to find the next request; closed, nothing that follows such a
    body can be taken for one.
    """
    if intake:
        refused = req.chunked or req.content_length > MAX_BODY_BYTES
    else:
        refused = any(
            name == "TRANSFER-ENCODING" or (name == "CONTENT-LENGTH" and int(value) > MAX_BODY_BYTES)
            for name, value in req.headers
        )
    if refused:
        req.must_close = True


def post_worker_init(worker):
    """Refuse to serve without the keys in use; tell idle workers of what is stored, and people of a log with values."""
    from workflows.postgres import server_log
    from workflows.sealing.key_register import require_keys
    from workflows.signals import notify

    require_keys()
    notify.begin()
    threading.Thread(target=server_log.warn, daemon=True).start()  # the database may be away
