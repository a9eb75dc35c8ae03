"""What is held or paced, who may do that, and what goes first of what has not begun."""

from importlib import import_module
from typing import Any

from django.db import migrations, models

GROUPS = {
    "support": ["view_pace"],
    "support lead": ["view_pace"],
    "engineer": ["view_pace", "set_pace"],
    "auditor": ["view_pace"],
}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


class Migration(migrations.Migration):
    dependencies = [("workflows", "0013_failures")]

    operations = [
        migrations.CreateModel(
            name="Pace",
            fields=[
                ("key", models.CharField(max_length=110, primary_key=True, serialize=False)),
                ("held_until", models.DateTimeField(null=True)),
                ("held_by", models.CharField(db_default="", max_length=150)),
                ("held_reason", models.TextField(db_default="")),
                ("per_second", models.FloatField(null=True)),
                ("paced_by", models.CharField(db_default="", max_length=150)),
                ("paced_reason", models.TextField(db_default="")),
                ("next_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "queue or type",
                "verbose_name_plural": "queues and types",
                "permissions": [("set_pace", "Can hold a queue or a type, and set its pace")],
                "default_permissions": ("view",),
            },
        ),
        migrations.AddField("Workflow", "priority", models.SmallIntegerField(db_default=0)),
        migrations.AlterField(
            model_name="circuitevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("opened", "Opened"),
                    ("closed", "Closed"),
                    ("held", "Held"),
                    ("tried", "To be tried"),
                    ("asked", "Asked to let fail"),
                    ("let_fail", "Let fail"),
                    ("released", "Released"),
                    ("paced", "Paced"),
                ],
                max_length=10,
            ),
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
