"""EXAMINATION: runs all checks, one after another. A check that fails does not stop the others."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from django.db import DatabaseError, Error, connection, transaction

from workflows.extension import installed
from workflows.features.doctor import installation, server
from workflows.features.doctor.findings import Finding, Level, Look
from workflows.postgres import sqlstates

# Each check reads views and the ends of indexes. A database in trouble may be slow.
LONGEST_LOOK = "10s"


def examine() -> list[Finding]:
    """All findings, the worst first. Within a level, those about the server come first."""
    try:
        connection.ensure_connection()
    except Error as error:
        place = sqlstates.host_port(connection.alias)
        what = f"The database at {place} cannot be reached: {sqlstates.loggable(error)}."
        return [
            Finding(
                Level.CRITICAL,
                "database",
                what,
                "Bring it back (with Patroni: docs/how-to/lost-primary.md), or mend DATABASE_URL and the way there.",
            )
        ]
    found = [finding for look in (*server.LOOKS, installation.migrations) for finding in _look(look)]
    if not any(finding.about == "migrations" for finding in found):  # the other checks read this release's tables
        looks = [*installation.LOOKS, *(look for each in installed() for look in each.looks)]
        found += [finding for look in looks for finding in _look(look)]
    return sorted(found, key=lambda finding: -finding.level)


def _look(look: Look) -> Iterator[Finding]:
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [LONGEST_LOOK])
            found = list(look())
            transaction.set_rollback(True)  # nothing is stored, and a COMMIT could wait for a standby
    except DatabaseError as error:
        cure = "The SQLSTATE says why. A role that lacks a right: GRANT pg_monitor TO it."
        found = [_not_known(look, f"PostgreSQL refused: {sqlstates.loggable(error)}", cure)]
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        failed = f"The look failed: {sqlstates.loggable(error)}, in {where.name} ({Path(where.filename).name})"
        found = [_not_known(look, failed, "It is a defect: show this to an engineer.")]
    yield from found


def _not_known(look: Look, why: str, cure: str) -> Finding:
    return Finding(Level.WARNING, "not known", f'Not known: "{look.__doc__}" {why}.', cure)
