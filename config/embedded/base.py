"""The database backend `config.embedded`: Django's own for PostgreSQL, on the embedded server.

The setting HOST is the server's home. A process's first connection starts or joins the server; commands without a
connection (`manage.py check`, mypy) leave it alone.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db.backends.postgresql import base
from django.db.backends.postgresql.client import DatabaseClient as PostgresClient

from config.embedded.server import PORT, USER, Server


@cache
def join(home: Path) -> Server:
    """Return the server of this home, started if needed.

    Only a process's first call checks. Later ones, also in its forks, assume that it runs: a worker that reconnects
    while somebody restarts the server must not start another one.
    """
    server = Server(home)
    server.start()
    return server


class DatabaseClient(PostgresClient):
    """`manage.py dbshell` with the wheel's psql."""

    @classmethod
    def settings_to_cmd_args_env(
        cls, settings_dict: dict[str, Any], parameters: Iterable[str]
    ) -> tuple[list[str], dict[str, str] | None]:
        ours = join(Path(settings_dict["HOST"]))
        settings_dict = {**settings_dict, **_address(ours)}
        (_, *arguments), environment = super().settings_to_cmd_args_env(settings_dict, parameters)
        return [str(ours.program("psql")), *arguments], environment


class DatabaseWrapper(base.DatabaseWrapper):
    client_class = DatabaseClient

    def get_connection_params(self) -> dict[str, Any]:
        home = Path(self.settings_dict["HOST"])
        if not home.is_absolute():
            raise ImproperlyConfigured(f"HOST must be the folder of the embedded PostgreSQL, and is {str(home)!r}.")
        ours = join(home)
        address = {name.lower(): value for name, value in _address(ours).items()}
        return super().get_connection_params() | address


def _address(ours: Server) -> dict[str, str]:
    return {"HOST": str(ours.socket_folder()), "PORT": str(PORT), "USER": USER}
