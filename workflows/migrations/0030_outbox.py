"""Events for others, one row for each destination."""

from importlib import import_module
from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp

GROUPS = {name: ["view_outboxevent"] for name in ("engineer", "auditor")}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


class Migration(migrations.Migration):
    dependencies = [("workflows", "0029_erasures")]

    operations = [
        migrations.CreateModel(
            name="OutboxEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("event_id", models.UUIDField()),
                ("destination", models.CharField(max_length=63)),
                ("topic", models.CharField(max_length=100)),
                ("body", models.JSONField()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                ("since", models.DateTimeField(db_default=ClockTimestamp())),
                ("due_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("tries", models.PositiveIntegerField(db_default=0)),
                ("error", models.CharField(db_default="", max_length=100)),
                (
                    "state",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("", "Not sent"),
                            ("sent", "Sent"),
                            ("given_up", "Given up"),
                            ("discarded", "Discarded"),
                        ],
                        db_default="",
                        max_length=9,
                    ),
                ),
                ("settled_at", models.DateTimeField(null=True)),
                (
                    "workflow",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="workflows.workflow",
                    ),
                ),
            ],
            options={
                "verbose_name": "outbox event",
                "verbose_name_plural": "outbox events",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(name="outbox_event_once", fields=["workflow", "destination", "event_id"])
                ],
                "indexes": [
                    models.Index(name="outbox_due", fields=["destination", "due_at", "id"], condition=Q(state="")),
                    models.Index(name="outbox_oldest", fields=["destination", "since"], condition=Q(state="")),
                    models.Index(name="outbox_given_up", fields=["destination", "id"], condition=Q(state="given_up")),
                ],
            },
        ),
        # As of the other tables that work is taken from: see 0001_initial.
        migrations.RunSQL(
            """ALTER TABLE workflows_outboxevent
                   SET (autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on)""",
            migrations.RunSQL.noop,
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
