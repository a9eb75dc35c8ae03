"""The PostgreSQL the suite runs on: the embedded one, or the server of DATABASE_URL."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, connections

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


def empty_tables(*_: Any) -> None:
    """Leave no row behind that a test has committed: as Django's flush does, in a tenth of its time.

    A flush gives each of some thirty tables new files, and makes the permissions anew; nearly all of the tables are
    empty. A few pages of dead rows stay behind here: who counts pages, or looks at plans, begins with a TRUNCATE.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT relname, pg_relation_size(oid) > 65536 FROM pg_class
                WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0"""
        )
        used = [(table, big) for table, big in cursor.fetchall() if table not in OF_THE_SCHEMA]
        if used:
            cursor.execute("; ".join(f"TRUNCATE {t} CASCADE" if big else f"DELETE FROM {t}" for t, big in used))


OF_THE_SCHEMA = {"django_migrations", "django_content_type", "auth_permission"}


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
