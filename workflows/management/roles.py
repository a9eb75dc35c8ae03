"""ROLES: what each role may do in the database, table by table, and the SQL that says so (`manage.py grants`).

A new table needs a line in `RIGHTS`, and a column that the intake or readers need a name in `INTAKE` or `VIEWS`; tests
say so. A migration that drops or rewrites a column of `VIEWS` first drops the view: `DROP VIEW IF EXISTS reporting....`
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model

from workflows.postgres.statements import literals

# The letters of an access privilege, as PostgreSQL writes them.
# https://www.postgresql.org/docs/current/ddl-priv.html#PRIVILEGE-ABBREVS-TABLE
PRIVILEGES = {"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE"}


class Rights(NamedTuple):
    """What the workers and the console may do with a table: letters of PRIVILEGES."""

    worker: str
    console: str


class Names(NamedTuple):
    """The names of the roles; each is an option of `manage.py grants`."""

    migrator: str = "onramp_migrator"
    intake: str = "onramp_intake"
    worker: str = "onramp_worker"
    console: str = "onramp_console"
    reader: str = "onramp_reader"


# "Worker" includes relays, consumers and `purge`; "console" includes the commands for people.
RIGHTS = {
    "workflows_access": Rights("rwd", "raw"),
    "workflows_apikey": Rights("r", "raw"),
    "workflows_assignedcause": Rights("", "rawd"),
    "workflows_attempt": Rights("rawd", "rw"),
    "workflows_bulkitem": Rights("rw", "raw"),
    "workflows_bulkoperation": Rights("rw", "raw"),
    "workflows_businesskey": Rights("rawd", "rawd"),
    "workflows_casenote": Rights("rwd", "raw"),
    "workflows_chore": Rights("raw", "rw"),
    "workflows_circuitevent": Rights("rad", "ra"),
    "workflows_confirmation": Rights("rawd", "raw"),
    "workflows_correction": Rights("rwd", "raw"),
    "workflows_datakey": Rights("ra", "rad"),
    "workflows_deputy": Rights("rd", "raw"),
    "workflows_effect": Rights("rawd", "rawd"),
    "workflows_erasure": Rights("r", "raw"),
    "workflows_event": Rights("rawd", "raw"),
    "workflows_followup": Rights("rawd", "rawd"),
    "workflows_hold": Rights("r", "raw"),
    "workflows_manualtask": Rights("rawd", "rw"),
    "workflows_mutedmail": Rights("r", "rad"),
    "workflows_notice": Rights("rawd", "rd"),
    "workflows_originalpayload": Rights("rd", "rawd"),
    "workflows_outboxevent": Rights("rawd", "rawd"),
    "workflows_pace": Rights("rw", "rawd"),
    "workflows_pause": Rights("rwd", "rawd"),
    "workflows_proposal": Rights("rwd", "raw"),
    "workflows_rollup": Rights("rawd", "r"),
    "workflows_rollupprogress": Rights("raw", "r"),
    "workflows_savedview": Rights("", "rawd"),
    "workflows_search": Rights("rd", "ra"),
    "workflows_searchkey": Rights("rawd", "rawd"),
    "workflows_service": Rights("rawd", "raw"),
    "workflows_sideprocess": Rights("rawd", "r"),
    "workflows_signal": Rights("rawd", "rawd"),
    "workflows_spentkey": Rights("ra", "r"),
    "workflows_undeliveredmessage": Rights("rawd", "raw"),
    "workflows_wait": Rights("rawd", "rw"),
    "workflows_webhooksecret": Rights("r", "raw"),
    "workflows_workerprocess": Rights("rawd", "r"),
    "workflows_workflow": Rights("rawd", "raw"),
    # Who may do what. The table of users is here for the console; for the workers see `_columns_of_users`.
    "auth_group": Rights("r", "rawd"),
    "auth_group_permissions": Rights("r", "rawd"),
    "auth_permission": Rights("r", "r"),
    "auth_user": Rights("", "rawd"),
    "auth_user_groups": Rights("r", "rawd"),
    "auth_user_user_permissions": Rights("r", "rawd"),
    "django_admin_log": Rights("rad", "ra"),
    "django_content_type": Rights("r", "r"),
    "django_migrations": Rights("r", "r"),
    # How staff sign in.
    **dict.fromkeys(
        (
            *("account_emailaddress", "account_emailconfirmation", "axes_accessattempt"),
            *("axes_accessattemptexpiration", "axes_accessfailurelog", "axes_accesslog", "django_session"),
            *("mfa_authenticator", "socialaccount_socialaccount", "socialaccount_socialapp"),
            *("socialaccount_socialtoken", "staff_cache", "staff_enrolmentlink", "staff_factorsecret"),
            "usersessions_usersession",
        ),
        Rights("", "rawd"),
    ),
}

# The columns that the intake may read. It compares payloads by a function (migrations/0022_narrow_looks.py), and learns
# by others what it tells a client of a workflow.
INTAKE = {
    "django_migrations": "id app name applied",
    "workflows_apikey": """id name digest tenant tenant_only types queues verbs may per_second last_used_at expires_at
        revoked_at""",
    "workflows_attempt": "workflow_id closed_at",
    "workflows_confirmation": "workflow_id task_id decision state asked_at",
    "workflows_correction": "workflow_id state",
    "workflows_datakey": "id",
    "workflows_effect": """id workflow_id step generation undo state has_undo undo_failures undo_unavailable
        begun_at""",
    "workflows_manualtask": "workflow_id state",
    "workflows_service": "name step",
    "workflows_spentkey": "workflow_id workflow_type tenant idempotency_key submitted_by status state",
    "workflows_wait": "id workflow_id kind outcome superseded",
    "workflows_workflow": """id idempotency_key workflow_type submitted_by tenant queue status invisible_until
        retry_count waiting_for compensating cancelled_at current_step last_error_code parked_on created_at
        completed_at""",
}
# And those that it may write, in new rows.
INTAKE_INSERTS = {
    "workflows_datakey": "id since",
    "workflows_searchkey": "hash workflow_id key_id",
    "workflows_workflow": """idempotency_key workflow_type submitted_by queue linking_id payload expires_at tenant
        business_key given_request_id priority traceparent invisible_until""",
}
# And in rows that exist: that a key was used.
USES = {"workflows_apikey": "last_used_at"}

# What the reader sees: views, each with its table and columns. Nothing in them is of a person, or typed by one:
# docs/data.md says which columns are.
SCHEMA = "reporting"
VIEWS = {
    "workflows": (
        "workflows_workflow",
        """id workflow_type tenant submitted_by queue priority status begun created_at completed_at cancelled_at
        emptied_at expires_at invisible_until compensating retry_count unavailable_count parked_on parked_at
        current_step last_error_class last_error_code failed_release parent_id""",
    ),
    "attempts": (
        "workflows_attempt",
        """id workflow_id number worker release due_since opened_at closed_at outcome steps_in_short died_in
        died_how""",
    ),
    "effects": (
        "workflows_effect",
        """id workflow_id step generation undo state error_class error_code first_begun_at begun_at settled_at has_undo
        undo_failures undo_unavailable""",
    ),
    "waits": (
        "workflows_wait",
        "id workflow_id kind generation created_at deadline due_at outcome resolved_at superseded team",
    ),
    "tasks": (
        "workflows_manualtask",
        "id workflow_id wait_id task_type state team created_at claimed_at due_at expires_at decided_at four_eyes",
    ),
    "events": ("workflows_event", "id workflow_id at kind attempt step"),
    "deferred_steps": (
        "workflows_followup",
        "id workflow_id step queue created_at due_at tries failures unavailable acknowledged_failure",
    ),
    "services": (
        "workflows_service",
        "name workflow_type step code since failed answered opened_at closed_at retry_at",
    ),
    "rollup": ("workflows_rollup", "grain metric at workflow_type step outcome code count seconds buckets"),
}


def tables() -> dict[str, Rights]:
    """The tables of this installation that have a line here, with the project's own names for those of users."""
    users = get_user_model()
    own = {"auth_user": users, "auth_user_groups": users.groups.through}
    own["auth_user_user_permissions"] = users.user_permissions.through
    named = {own[table]._meta.db_table if table in own else table: rights for table, rights in RIGHTS.items()}
    return {table: rights for table, rights in named.items() if table in _present()}


def others() -> list[str]:
    """The tables of this installation that have no line here: those of the project's own apps."""
    return sorted(_present() - tables().keys())


def _present() -> set[str]:
    models = apps.get_models(include_auto_created=True)
    caches = {
        str(cache.get("LOCATION", "")) for cache in settings.CACHES.values() if "DatabaseCache" in cache["BACKEND"]
    }
    return {model._meta.db_table for model in models if model._meta.managed} | caches | {"django_migrations"}


def _columns_of_users() -> str:
    """All columns of users but the password, for the workers."""
    return " ".join(str(each.column) for each in get_user_model()._meta.concrete_fields if each.name != "password")


def sql(names: Names, schema: str) -> Iterator[str]:
    """The statements, one transaction, that give the roles these rights and no others. `schema` has the tables."""
    ours = tables()
    everyone = ", ".join(names[1:])
    yield "BEGIN"
    yield "SET LOCAL client_min_messages = warning"
    yield f"SET LOCAL search_path = {schema}"
    yield from (_create(role) for role in names)
    yield _CHECK_OWNER.format(tables=literals(ours), migrator=names.migrator)
    yield _STATISTICS.format(roles=f"{names.migrator}, {names.worker}, {names.console}")
    yield f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {names.migrator}"
    yield f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC"
    yield f"GRANT USAGE ON SCHEMA {schema} TO {', '.join(names[1:4])}"
    yield _CREATE_SCHEMA.format(schema=SCHEMA, migrator=names.migrator)
    yield f"SET LOCAL ROLE {names.migrator}"
    yield f"REVOKE ALL ON {', '.join(ours)} FROM {everyone}"
    for table, rights in ours.items():
        yield from _grant(table, rights.worker, names.worker)
        yield from _grant(table, rights.console, names.console)
    yield from _grant(get_user_model()._meta.db_table, "r", names.worker, _columns_of_users())
    for letter, of in (("r", INTAKE), ("a", INTAKE_INSERTS)):
        for table, columns in of.items():
            yield from _grant(table, letter, names.intake, columns)
    for table, columns in USES.items():
        for role in (names.intake, names.worker):
            yield from _grant(table, "w", role, columns)
    yield _LOOKS.format(roles=", ".join(names[1:4]))
    yield from _views(names.reader)
    yield "COMMIT"


def _create(role: str) -> str:
    # Two installations of a cluster may do it at once.
    return f"""DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN CREATE ROLE {role}; END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$"""


def _grant(table: str, letters: str, role: str, columns: str = "") -> Iterator[str]:
    if letters:
        named = f" ({', '.join(columns.split())})" if columns else ""
        yield f"GRANT {', '.join(PRIVILEGES[letter] + named for letter in letters)} ON {table} TO {role}"


def _views(reader: str) -> Iterator[str]:
    # Made again, for a view cannot lose a column.
    yield f"DROP VIEW IF EXISTS {', '.join(f'{SCHEMA}.{view}' for view in VIEWS)}"
    for view, (table, columns) in VIEWS.items():
        yield f"CREATE VIEW {SCHEMA}.{view} AS SELECT {', '.join(columns.split())} FROM {table}"  # noqa: S608 (ours)
    yield f"GRANT USAGE ON SCHEMA {SCHEMA} TO {reader}"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {SCHEMA} TO {reader}"


# A role that owns the tables may do everything with them.
_CHECK_OWNER = """DO $$ DECLARE other text; BEGIN
    SELECT tableowner INTO other FROM pg_tables
     WHERE schemaname = current_schema() AND tablename IN {tables} AND tableowner <> '{migrator}' LIMIT 1;
    IF other IS NOT NULL THEN
        RAISE EXCEPTION 'The tables belong to %, and not to {migrator}', other USING HINT = format(
            'Keep that role as the migrator: manage.py grants --migrator %s', other);
    END IF;
END $$"""

# To see sessions of other roles in pg_stat_activity: docs/deployment.md. The doctor says what it misses without.
_STATISTICS = """DO $$ BEGIN
    GRANT pg_read_all_stats TO {roles};
EXCEPTION WHEN insufficient_privilege THEN
    RAISE WARNING 'This role may not grant pg_read_all_stats: manage.py doctor will know less';
END $$"""

_CREATE_SCHEMA = """DO $$ BEGIN
    IF to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema} AUTHORIZATION {migrator}; END IF;
END $$"""

# The functions that look into a table for a role that may not read it.
_LOOKS = """DO $$ DECLARE each regprocedure; BEGIN
    FOR each IN SELECT oid FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosecdef
                   AND starts_with(proname, 'workflows_') LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', each);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO {roles}', each);
    END LOOP;
END $$"""
