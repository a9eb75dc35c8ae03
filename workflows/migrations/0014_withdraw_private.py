"""Private workflows are withdrawn (docs/adr/0034): what is kept of a message is sealed by DATA_KEYS, as all that is sealed."""

from typing import Any

from django.core.management import CommandError
from django.db import migrations

# Each of what was sealed under a key of its own had this name, and a text, wherever it stood in the column.
ENVELOPE = """%"(sealed)": "%"""
PLACES = (
    ("workflow", "payload"),
    ("workflow", "context"),
    ("effect", "result"),
    ("manualtask", "facts"),
    ("outboxevent", "body"),
    ("signal", "payload"),
    ("wait", "result"),
    ("undeliveredmessage", "headers"),
)
WHAT_TO_DO = (
    "Nothing opens these any more in this release, so nothing was migrated. With the release before: let no definition "
    "be private, let what is under way finish, have what has finished erased, settle what is undelivered, and "
    "delete the keys that are left (manage.py datakeys forget). Then migrate again."
)


def refuse(apps: Any, schema_editor: Any) -> None:
    """Raise CommandError while a key, or what is sealed under one, is there."""
    with schema_editor.connection.cursor() as cursor:

        def count(sql: str, *parameters: Any) -> int:
            cursor.execute(sql, parameters)
            return cursor.fetchone()[0]

        # What is private is stored with its key, so nothing more comes while this lock is held.
        cursor.execute("LOCK TABLE workflows_contentkey IN SHARE MODE")
        found = {"workflows_contentkey": count("SELECT count(*) FROM workflows_contentkey")}
        for table, column in PLACES:
            name = f"workflows_{table}"
            found[f"{name}.{column}"] = count(f"SELECT count(*) FROM {name} WHERE {column}::text LIKE %s", ENVELOPE)  # noqa: S608 (ours)
    if left := ", ".join(f"{number} in {place}" for place, number in found.items() if number):
        raise CommandError(f"Private workflows, their keys or what they hold are still there: {left}. {WHAT_TO_DO}")


# What is open stays in clear: `manage.py datakeys fill` seals it. What is settled is emptied.
IN_ONE_COLUMN = """
    UPDATE workflows_undeliveredmessage
       SET content = CASE WHEN state = '' THEN jsonb_build_object(
           'key', translate(encode(key, 'base64'), E'\\n', ''), 'value', translate(encode(value, 'base64'), E'\\n', ''),
           'headers', content) ELSE '[]' END"""


class Migration(migrations.Migration):
    dependencies = [("workflows", "0013_event_not_completed")]

    operations = [
        migrations.RunPython(refuse, migrations.RunPython.noop),
        migrations.RenameField(model_name="undeliveredmessage", old_name="headers", new_name="content"),
        migrations.RunSQL(IN_ONE_COLUMN, migrations.RunSQL.noop),
        migrations.RemoveField(model_name="undeliveredmessage", name="key"),
        migrations.RemoveField(model_name="undeliveredmessage", name="value"),
        migrations.DeleteModel(name="ContentKey"),
    ]
