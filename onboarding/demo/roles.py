"""The demo's processes with a role each in the database, as `manage.py grants` makes them: docs/deployment.md."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import psycopg
from django.db import Error, connection

from workflows.management import roles

# The processes that are started, and the role of each.
ROLES = {"intake": "intake", "console": "console", "workers": "worker", "relay": "worker"}


def environments() -> Mapping[str, Mapping[str, str]]:
    """What each of ROLES has in its environment; nothing where we may not make roles, or they may not sign in.

    The roles get no password: the embedded server trusts all that may open its socket.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT tableowner FROM pg_tables WHERE tablename = 'workflows_workflow'")
            names = roles.Names(migrator=cursor.fetchone()[0])
            for statement in (*roles.sql(names, "public"), *(f"ALTER ROLE {each} LOGIN" for each in names[1:4])):
                cursor.execute(statement)
            info = cursor.connection.info
        server = f"{quote(info.host, safe='')}:{info.port}/{quote(info.dbname, safe='')}"
        urls = {process: f"postgres://{getattr(names, role)}@{server}" for process, role in ROLES.items()}
        for url in urls.values():
            psycopg.connect(url, connect_timeout=3).close()
    except (Error, psycopg.Error):
        return {}
    finally:
        connection.close()  # its role is another by now
    return {process: {"DATABASE_URL": url} for process, url in urls.items()}
