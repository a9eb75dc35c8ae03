"""How commands report a database without this release's tables, or one that is away."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import InterfaceError, OperationalError, connection

from workflows.ingress import api_keys
from workflows.intake.submissions import submission_definition
from workflows.postgres import sqlstates
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.postgres.missing_migrations import missing_migrations
from workflows.sealing.key_register import require_keys


class DatabaseCommand(BaseCommand):
    """A command for a person: it reports a database error in one line, also if the connection is lost midway."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            missing = len(missing_migrations())
        except OperationalError as error:
            raise CommandError(f"The database {_place()} cannot be reached: {sqlstates.loggable(error)}.") from None
        _refuse(missing)
        try:
            return super().execute(*args, **options)
        except (OperationalError, InterfaceError) as error:
            what = f"The database {_place()} has stopped the command midway"
            raise CommandError(f"{what}: {sqlstates.loggable(error)}.") from None


def refuse_unmigrated() -> None:
    """Refuse to start without this release's tables. A database that is away is no reason. Closes its connection."""
    try:
        missing = len(query_in_time(missing_migrations))
    except DatabaseUnavailable:
        return
    finally:
        connection.close()  # workers fork without one, and Kafka's consumer names its own
    _refuse(missing)


def refuse_lacking_keys() -> None:
    """Refuse to start without the data keys. A database that is away is no reason."""
    try:
        require_keys()
    except ImproperlyConfigured as refused:
        raise CommandError(str(refused)) from None


def refuse_unknown_clients(clients: Iterable[str]) -> None:
    """Refuse to start if one of these clients has no key that may submit: its tenant would be unknown."""
    try:
        keys = {each: api_keys.table.key_for(each, submission_definition()) for each in clients}
    except DatabaseUnavailable:
        return
    finally:
        connection.close()
    for client, key in keys.items():
        if key is None:
            cure = f"Make one: manage.py createapikey {client!r}."
            raise CommandError(f"There is no API client {client!r} that may submit. {cure}")
        if key.is_expired:
            cure = f"Make its successor: manage.py rotateapikey {key.id}."
            raise CommandError(f"The API key of the client {client!r} has expired. {cure}")


def _refuse(missing: int) -> None:
    if missing:
        these = "1 migration" if missing == 1 else f"{missing} migrations"
        raise CommandError(f"The database lacks {these} of this release: run `python manage.py migrate` first.")


def _place() -> str:
    """The database's name and host, without the user and the password."""
    database = connection.settings_dict
    host = database["HOST"] or "the local socket"
    return f"{database['NAME']} at {host}{database['PORT'] and ':'}{database['PORT']}"
