"""The PostgreSQL the suite runs on: the embedded one, or the server of DATABASE_URL."""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection, connections
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL, Identifier

from config.embedded.server import DATABASE, PORT, USER, Server
from workflows.postgres import session_settings
from workflows.postgres.wire import wire_of

Restart = Callable[[], None]

# What a server that the tests start does without. It endangers their own databases, and only when the whole machine
# crashes. When PostgreSQL's processes die, as in tests, nothing is lost that is not lost with it: a COMMIT is written
# before it is answered as ever (`synchronous_commit`), and the kernel keeps what is written.
UNSAFE = {"fsync": "off"}


def embedded_server() -> Server | None:
    """The embedded server of the project, None when the suite runs on DATABASE_URL."""
    database = settings.DATABASES["default"]
    return Server(Path(database["HOST"])) if database["ENGINE"] == "config.embedded" else None


def named(suffix: object) -> str:
    """A test database: `suffix` is the pid of the process that runs tests on it, or tells which template it is."""
    return f"test_{settings.DATABASES['default']['NAME']}_{suffix}"


def template() -> str:
    """The name of a database with all migrations applied, to copy: made by the first process that needs it.

    Its name tells the migrations apart. On our own server those of other migrations are dropped, and the databases of
    processes that were killed.
    """
    server = embedded_server()
    if server:
        server.start(**UNSAFE)
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(hashtext('template'))")  # the session ends with this block
        cursor.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [named("")])
        found = {row[0].removeprefix(named("")): row[0] for row in cursor.fetchall()}
        ours = f"template_{_migrations()}"
        for suffix, name in found.items() if server else ():
            in_use = psutil.pid_exists(int(suffix)) if suffix.isdecimal() else suffix == ours
            if not in_use:
                cursor.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
        if ours not in found:
            unfinished, finished = named("template_unfinished"), named(ours)
            cursor.execute(SQL("CREATE DATABASE {}").format(Identifier(unfinished)))
            _migrate(unfinished)
            cursor.execute(SQL("ALTER DATABASE {} RENAME TO {}").format(Identifier(unfinished), Identifier(finished)))
        return named(ours)


def _migrations() -> str:
    """A short hash of all that decides which tables there are."""
    digest = hashlib.sha256()
    for app in apps.get_app_configs():
        for file in sorted(Path(app.path, "migrations").glob("*.py")):
            digest.update(f"{app.label} {file.name} {file.read_text()}".encode())
    return digest.hexdigest()[:12]


def _migrate(database: str) -> None:
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = database
    try:
        call_command("migrate", verbosity=0)
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


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

    A flush gives each of some thirty tables new files, and makes the permissions again; nearly all of the tables are
    empty. A few pages of dead rows stay behind here: who counts pages, or looks at plans, starts with a TRUNCATE.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT relname, pg_relation_size(oid) > 65536 FROM pg_class
                WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0"""
        )
        used = [(table, big) for table, big in cursor.fetchall() if table not in OF_THE_SCHEMA]
        if used:
            with without_triggers():
                cursor.execute("; ".join(f"TRUNCATE {t} CASCADE" if big else f"DELETE FROM {t}" for t, big in used))


@contextmanager
def without_triggers() -> Iterator[None]:
    """Let a test change what is on record, as only a superuser of the server can."""
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        try:
            yield
        finally:
            cursor.execute("RESET session_replication_role")


def renew_sessions(*_: Any) -> None:
    """Leave the sessions of a test as if they had just been opened: opening them costs as much as a short test.

    Django would close them. What is not idle, or no longer there, is closed here, too.
    """
    for each in connections.all(initialized_only=True):
        wrapper: Any = each
        raw = wrapper.connection
        if raw is None:
            continue
        try:
            if raw.closed or raw.info.transaction_status != TransactionStatus.IDLE or not wrapper.autocommit:
                raise psycopg.OperationalError("in use")
            raw.execute("DISCARD ALL", prepare=False)
            vars(raw).pop("engine_session", None)
            wire_of(raw).forget_prepared()
            session_settings.tell(wrapper)
            wrapper.ensure_timezone()
        except (psycopg.Error, DatabaseError):
            wrapper.close()


OF_THE_SCHEMA = {"django_migrations", "django_content_type", "auth_permission"}


def connect(server: Server) -> psycopg.Connection[Any]:
    host = str(server.socket_folder())
    return psycopg.connect(host=host, port=PORT, user=USER, dbname=DATABASE, autocommit=True)


def other_clients(server: Server) -> int:
    """How many connections other than the asking one the server has now."""
    with connect(server) as connection:
        clients = "SELECT 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        return connection.execute(clients).rowcount


def stop_if_unused(server: Server) -> None:
    """Stop the server, unless something else came to use it in the meantime."""
    connections.close_all()
    give_up_at = time.monotonic() + 2
    while server.pid() is not None:
        if other_clients(server) == 0:
            server.stop()
        elif time.monotonic() > give_up_at:
            return
        else:
            time.sleep(0.1)
