"""Lists as files, and filters of the list that are saved under a name: tables, and who may."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import migrations, models

from workflows.models.clock import ClockTimestamp

GROUPS = {
    "support lead": ["export_workflow", "share_savedview"],
    "engineer": ["export_workflow", "share_savedview"],
    "auditor": ["export_workflow"],
}


def give(apps: Any, schema_editor: Any) -> None:
    """Give the permissions to the groups that are there: one that an operator has deleted is not made again."""
    groups = apps.get_model("auth", "Group").objects.using(schema_editor.connection.alias)
    there = set(groups.filter(name__in=GROUPS).values_list("name", flat=True))
    given = {name: codenames for name, codenames in GROUPS.items() if name in there}
    import_module("workflows.migrations.0003_groups").grant(apps, schema_editor, given)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0027_tasks_for_you"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

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
        migrations.CreateModel(
            name="SavedView",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=60)),
                ("query", models.CharField(max_length=1000)),
                ("team", models.CharField(db_default="", max_length=150)),
                ("saved_by", models.CharField(max_length=150)),
                ("saved_at", models.DateTimeField(db_default=ClockTimestamp())),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=models.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "permissions": [
                    ("share_savedview", "Can save a view of the list of workflows for a team, and delete a team's")
                ],
                "constraints": [
                    models.CheckConstraint(
                        name="saved_view_is_somebodys", condition=models.Q(owner=None) ^ models.Q(team="")
                    ),
                    models.UniqueConstraint(
                        name="saved_view_of_owner", fields=["owner", "name"], condition=~models.Q(owner=None)
                    ),
                    models.UniqueConstraint(
                        name="saved_view_of_team", fields=["team", "name"], condition=~models.Q(team="")
                    ),
                ],
            },
        ),
        migrations.RunPython(give, migrations.RunPython.noop),
        # Of the list of what needed attention: “Needs a person” has it. Last, because it locks the table.
        migrations.RemoveIndex(model_name="workflow", name="workflow_failing"),
    ]
