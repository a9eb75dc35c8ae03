"""SERVER LOG: whether PostgreSQL's own log contains values of our statements: patients' data, and secrets.

The statements' text contains none, because the server binds the parameters. A session sets what its role may set; a
superuser sets the rest: docs/deployment.md, What PostgreSQL logs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from django.db import DEFAULT_DB_ALIAS, connections

from workflows.postgres import sqlstates

logger = logging.getLogger(__name__)

# The id of the system check; `manage.py doctor` has its own.
CHECK = "workflows.W019"


class Leak(NamedTuple):
    """What the server's log contains of our statements, and the cure. `rare`: only if the engine itself fails."""

    what: str
    cure: str
    rare: bool = False


def leaks() -> Iterator[Leak]:
    """The leaks that the default connection's session would cause."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(_SETTINGS)
        (role, logged, plans, on_error, detail, destination) = cursor.fetchone()
    if logged:
        what = f"PostgreSQL's log has the parameters of statements ({logged}): payloads, phone numbers, keys."
        yield Leak(what, f"{_of_role(role, 'log_parameter_max_length = 0')} Then delete those logs.")
    for name, off in plans or ():
        what = f"PostgreSQL's log has values of statements ({name}): payloads, phone numbers, keys."
        yield Leak(what, f"{_of_role(role, f'{name} = {off}')} Then delete those logs.")
    if on_error:
        what = "PostgreSQL's log has the parameters of statements that fail (log_parameter_max_length_on_error)."
        yield Leak(what, _of_role(role, "log_parameter_max_length_on_error = 0"))
    if detail:
        what = "PostgreSQL's log quotes the row in the DETAIL of an error (log_error_verbosity)."
        yield Leak(what, _of_role(role, "log_error_verbosity = terse"), rare=True)
    elif destination:
        what = f"PostgreSQL's log quotes the row in the DETAIL of an error (log_destination = {destination})."
        yield Leak(what, "ALTER SYSTEM SET log_destination = stderr; SELECT pg_reload_conf();", rare=True)


def warn() -> None:
    """When a process starts, warn in our log about what the server would log; nothing if the database is away."""
    try:
        for leak in leaks():
            logger.warning("%s As a superuser: %s", leak.what, leak.cure)
    except sqlstates.DATABASE_ERRORS:
        return
    finally:
        connections[DEFAULT_DB_ALIAS].close()  # workers are forked without a connection


def _of_role(role: str, setting: str) -> str:
    return f"ALTER ROLE {role} SET {setting};"


# A module that is not loaded (auto_explain, pgaudit) has no settings. Log formats for programs always include DETAIL.
_SETTINGS = """
    SELECT quote_ident(session_user),
           string_agg(name || ' = ' || setting, ', ' ORDER BY name) FILTER (WHERE
               current_setting('log_parameter_max_length') <> '0'
               AND (name = 'log_statement' AND setting IN ('mod', 'all')
                    OR name IN ('log_min_duration_statement', 'log_min_duration_sample') AND setting <> '-1'
                    OR name = 'log_transaction_sample_rate' AND setting <> '0')),
           json_agg(json_build_array(name, CASE setting WHEN 'on' THEN 'off' ELSE '-1' END) ORDER BY name) FILTER (WHERE
               name = 'auto_explain.log_min_duration' AND setting <> '-1'
               OR name = 'pgaudit.log_parameter' AND setting = 'on'),
           bool_or(name = 'log_parameter_max_length_on_error' AND setting <> '0'),
           bool_or(name = 'log_error_verbosity' AND setting <> 'terse'),
           max(setting) FILTER (WHERE name = 'log_destination' AND setting ~ 'csvlog|jsonlog')
      FROM pg_settings"""
