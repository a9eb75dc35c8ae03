"""Lists as files: a permission, for support leads, engineers and auditors, and a line of the audit for each."""

from importlib import import_module
from typing import Any

from django.db import migrations, models

GROUPS = {name: ["export_workflow"] for name in ("support lead", "engineer", "auditor")}


def give(apps: Any, schema_editor: Any) -> None:
    """Give the permissions to the groups that are there: one that an operator has deleted is not made again."""
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    there = set(groups.filter(name__in=GROUPS).values_list("name", flat=True))
    given = {name: codenames for name, codenames in GROUPS.items() if name in there}
    import_module("workflows.migrations.0003_groups").grant(apps, schema_editor, given)


class Migration(migrations.Migration):
    dependencies = [("workflows", "0027_tasks_for_you")]

    operations = [
        migrations.AlterModelOptions(
            name="workflow",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("retry_workflow", "Can retry a failed workflow"),
                    ("run_workflow_now", "Can run a waiting workflow now"),
                    ("cancel_workflow", "Can cancel a workflow that has charged nothing"),
                    ("cancel_paid_workflow", "Can cancel a workflow whatever it has charged"),
                    ("follow_up_workflow", "Can have a failed best-effort step of a complete workflow run again"),
                    ("acknowledge_workflow", "Can acknowledge what has failed, or was given up"),
                    ("correct_workflow", "Can ask for a correction of what was sent, and approve a colleague's"),
                    ("export_workflow", "Can take the list of workflows, masked, as a file"),
                ],
            },
        ),
        migrations.AlterField(
            model_name="access",
            name="kind",
            field=models.CharField(
                choices=[
                    ("viewed", "Opened the page"),
                    ("revealed", "Revealed"),
                    ("exported", "Exported the audit"),
                    ("listed", "Exported a list of workflows"),
                ],
                max_length=10,
            ),
        ),
        migrations.RunPython(give, migrations.RunPython.noop),
    ]
