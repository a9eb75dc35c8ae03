"""Legal holds, and who may place one."""

from importlib import import_module
from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

import workflows.models.clock

GROUPS = {"support lead": ["place_hold"], "auditor": ["place_hold"]}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


class Migration(migrations.Migration):
    dependencies = [("workflows", "0027_retention_checked")]

    operations = [
        migrations.CreateModel(
            name="Hold",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hash", models.BinaryField(null=True)),
                ("key_id", models.IntegerField(null=True)),
                ("reason", models.TextField()),
                ("placed_by", models.CharField(max_length=150)),
                ("placed_at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("until", models.DateTimeField()),
                ("lifted_by", models.CharField(db_default="", max_length=150)),
                ("lifted_reason", models.TextField(db_default="")),
                (
                    "workflow",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="workflows.workflow",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "permissions": [("place_hold", "Can place a legal hold, and lift one")],
                "constraints": [
                    models.CheckConstraint(
                        name="hold_is_on_one",
                        condition=Q(workflow=None, hash__isnull=False) | Q(workflow__isnull=False, hash=None),
                    )
                ],
            },
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
