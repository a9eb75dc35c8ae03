"""Calls that a person has made outside: the ledger has their reference, and never calls them itself."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q

# NOT VALID: the column is new, so that no row breaks it, and the ledger is not read for that.
NOT_CALLED = """
    ALTER TABLE workflows_effect ADD CONSTRAINT effect_by_hand_is_not_called
      CHECK (by_hand = '' OR (NOT undo AND state IN ('done', 'undone', 'kept'))) NOT VALID"""

# As in 0022, and whether a person has made the call.
CALL = """
    CREATE OR REPLACE FUNCTION workflows_call(which bigint, reference text) RETURNS jsonb
    STABLE LANGUAGE sql SECURITY DEFINER SET search_path = {path} AS $$
        SELECT jsonb_build_object(
               'result', CASE WHEN result IS NOT NULL
                              THEN jsonb_build_object(reference, nullif(result ->> reference <> '', false)) END,
               'by_hand', CASE WHEN by_hand = '' THEN '' ELSE 'yes' END,
               'settled_by', CASE WHEN settled_by IN ('', 'call', 'lookup') THEN settled_by ELSE 'a person' END)
          FROM workflows_effect WHERE id = which
    $$"""

# What was said has a call's result now: it is deleted with the content, once it is decided.
_AS_ASKED = "NEW.decision, NEW.answer,"
_OR_DELETED = "NEW.decision, CASE WHEN NEW.state = 'asked' THEN NEW.answer ELSE coalesce(NEW.answer, OLD.answer) END,"


def guard(apps: Any, schema_editor: Any) -> None:
    users = apps.get_model(settings.AUTH_USER_MODEL)._meta.db_table
    before = import_module("workflows.migrations.0021_confirmations").GUARD
    function = before.partition("CREATE TRIGGER")[0].strip().replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    assert _AS_ASKED in function
    sql = function.replace(_AS_ASKED, _OR_DELETED).format(users=schema_editor.quote_name(users))
    schema_editor.execute(sql, params=None)


def call(apps: Any, schema_editor: Any, sql: str = CALL) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT quote_ident(current_schema())")
        path = f"pg_catalog, {cursor.fetchone()[0]}, pg_temp"
    schema_editor.execute(sql.format(path=path))


def call_as_before(apps: Any, schema_editor: Any) -> None:
    before = import_module("workflows.migrations.0022_narrow_looks").CALL
    call(apps, schema_editor, before.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0029_bulk_cause"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField("effect", "by_hand", models.CharField(max_length=200, db_default="")),
        migrations.SeparateDatabaseAndState(
            [
                migrations.RunSQL(
                    NOT_CALLED, "ALTER TABLE workflows_effect DROP CONSTRAINT effect_by_hand_is_not_called"
                )
            ],
            [
                migrations.AddConstraint(
                    "effect",
                    models.CheckConstraint(
                        name="effect_by_hand_is_not_called",
                        condition=Q(by_hand="") | Q(undo=False, state__in=["done", "undone", "kept"]),
                    ),
                )
            ],
        ),
        migrations.RunPython(call, call_as_before),
        migrations.RunPython(guard, migrations.RunPython.noop),
    ]
