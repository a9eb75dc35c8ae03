"""The PostgreSQL the suite runs on: the embedded one, or the server of DATABASE_URL."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import connections

from config.embedded.server import Server

Restart = Callable[[], None]


def embedded_server() -> Server | None:
    """The embedded server of the project, None when the suite runs on DATABASE_URL."""
    database = settings.DATABASES["default"]
    return Server(Path(database["HOST"])) if database["ENGINE"] == "config.embedded" else None


def why_no_restart() -> str | None:
    """Why the server cannot be restarted from here, None when it can."""
    if embedded_server() is None and not os.environ.get("TEST_PG_RESTART"):
        return "TEST_PG_RESTART does not say how to restart the server of DATABASE_URL"
    return None


def restart_postgres() -> None:
    """Restart the server at once (`pg_ctl restart -m immediate`): every connection breaks. It is ready again after."""
    server = embedded_server()
    if server is not None:
        server.restart("immediate")
    else:
        # Into nothing, not into a pipe: the new server would hold it open.
        command = os.environ["TEST_PG_RESTART"]
        subprocess.run(command, shell=True, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # noqa: S602


def stop_if_unused(server: Server) -> None:
    """Stop the server, unless something else came to use it in the meantime."""
    connections.close_all()
    give_up_at = time.monotonic() + 2
    while server.pid() is not None:
        if server.other_clients() == 0:
            server.stop()
        elif time.monotonic() > give_up_at:
            return
        else:
            time.sleep(0.1)
