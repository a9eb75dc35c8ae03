from typing import Any

from django.db import migrations

SLICE = 5_000
MOVE = """
    WITH slice AS MATERIALIZED (
        SELECT hash, workflow_id, former_role FROM workflows_searchkey
         WHERE (hash, workflow_id) > (%s, %s) ORDER BY hash, workflow_id LIMIT %s),
    gone AS (
        DELETE FROM workflows_searchkey k USING slice
         WHERE k.hash = slice.hash AND k.workflow_id = slice.workflow_id AND slice.former_role IS NOT NULL
        RETURNING k.*),
    moved AS (
        INSERT INTO workflows_businesskey_unmoved (hash, workflow_id, key_id, role)
        SELECT hash, workflow_id, key_id, former_role FROM gone)
    SELECT hash, workflow_id FROM slice ORDER BY hash DESC, workflow_id DESC LIMIT 1"""


def move(apps: Any, schema_editor: Any) -> None:
    """Each slice is a transaction of its own, beside the intake; stopped, it starts again with what is left."""
    last = (b"", 0)
    with schema_editor.connection.cursor() as cursor:
        while last:
            cursor.execute(MOVE, [*last, SLICE])
            last = cursor.fetchone()


BACK = """
    WITH gone AS (DELETE FROM workflows_businesskey_unmoved RETURNING *)
    INSERT INTO workflows_searchkey (hash, workflow_id, key_id, former_role)
    SELECT hash, workflow_id, key_id, role FROM gone"""


def move_back(apps: Any, schema_editor: Any) -> None:
    schema_editor.execute(BACK)


class Migration(migrations.Migration):
    """The hashes of business keys leave the table of search keys."""

    atomic = False
    dependencies = [("workflows", "0017_business_keys")]

    operations = [migrations.RunPython(move, move_back)]
