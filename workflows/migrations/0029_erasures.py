"""Erasures that two people decide; and what is on record may be emptied for one, however young it is."""

from importlib import import_module
from typing import Any

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

import workflows.models.clock

GROUPS = {"support lead": ["erase_workflow"]}

MAY_BE_EMPTIED = """
    CREATE OR REPLACE FUNCTION workflows_may_be_emptied(which bigint) RETURNS boolean STABLE LANGUAGE sql AS $$
        SELECT EXISTS (SELECT FROM workflows_workflow w
                        WHERE w.id = which AND w.emptied_at IS NOT NULL
                          AND (w.completed_at < now() - interval '7 days'
                               OR EXISTS (SELECT FROM workflows_erasure e
                                           WHERE e.state = 'done' AND e.workflows @> ARRAY[which])))
    $$"""


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


def who(**more: Any) -> Any:
    return models.ForeignKey(
        db_index=False,
        on_delete=django.db.models.deletion.PROTECT,
        related_name="+",
        to=settings.AUTH_USER_MODEL,
        **more,
    )


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0028_holds"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Erasure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hash", models.BinaryField()),
                (
                    "workflows",
                    django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), size=None),
                ),
                ("reason", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("asked", "Waits for a second person"),
                            ("done", "Erased"),
                            ("refused", "Refused"),
                        ],
                        db_default="asked",
                        max_length=7,
                    ),
                ),
                ("asked_at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("decided_at", models.DateTimeField(null=True)),
                ("asked_by", who()),
                ("decided_by", who(null=True)),
            ],
            options={
                "default_permissions": (),
                "permissions": [("erase_workflow", "Can ask for an erasure, and approve a colleague's")],
                "constraints": [
                    models.CheckConstraint(
                        name="erasure_four_eyes",
                        condition=~Q(state="done") | Q(decided_by__isnull=False) & ~Q(decided_by=F("asked_by")),
                    )
                ],
                "indexes": [django.contrib.postgres.indexes.GinIndex(fields=["workflows"], name="erasure_of_workflow")],
            },
        ),
        migrations.RunSQL(MAY_BE_EMPTIED, migrations.RunSQL.noop),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
