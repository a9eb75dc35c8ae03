"""Bulk operations, and who may see them and start them."""

from importlib import import_module
from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import workflows.models.clock

# Whoever can retry one may retry a few at once; of many somebody with this right decides.
SUPPORT = ["view_bulkoperation"]
GROUPS = {
    "support": SUPPORT,
    "support lead": [*SUPPORT, "start_bulkoperation"],
    "engineer": [*SUPPORT, "start_bulkoperation"],
    "auditor": SUPPORT,
}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0010_rollup_indexes"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="BulkOperation",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("verb", models.CharField(max_length=20)),
                ("arguments", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                ("chosen_by", models.TextField()),
                ("selected", models.PositiveIntegerField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "Not started"),
                            ("asked", "Waits for a second person"),
                            ("running", "Under way"),
                            ("paused", "Paused"),
                            ("cancelled", "Cancelled"),
                            ("done", "Carried out"),
                        ],
                        db_default="draft",
                        max_length=10,
                    ),
                ),
                ("reason", models.TextField(db_default="")),
                ("pace", models.PositiveIntegerField(db_default=5)),
                ("next_at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("paused_why", models.TextField(db_default="")),
                ("asked_at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("four_eyes", models.BooleanField(db_default=False)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "approved_by",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "asked_by",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "permissions": [("start_bulkoperation", "Can do the same to many workflows at once")],
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="BulkItem",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("row", models.BigIntegerField()),
                ("seen", models.BigIntegerField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[("", "To be done"), ("done", "Done"), ("skipped", "Skipped"), ("failed", "Failed")],
                        db_default="",
                        max_length=7,
                    ),
                ),
                ("why", models.TextField(db_default="")),
                ("at", models.DateTimeField(null=True)),
                (
                    "operation",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="items",
                        to="workflows.bulkoperation",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.AddIndex(
            model_name="bulkoperation",
            index=models.Index(
                condition=models.Q(("state", "running")), fields=["next_at"], name="bulk_operation_running"
            ),
        ),
        migrations.AddConstraint(
            model_name="bulkoperation",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("four_eyes", False),
                    ("state__in", ["draft", "asked", "cancelled"]),
                    models.Q(
                        ("approved_by__isnull", False), models.Q(("approved_by", models.F("asked_by")), _negated=True)
                    ),
                    _connector="OR",
                ),
                name="bulk_operation_four_eyes",
            ),
        ),
        migrations.AddIndex(
            model_name="bulkitem",
            index=models.Index(fields=["operation", "outcome", "id"], name="bulk_item_outcome"),
        ),
        migrations.AddConstraint(
            model_name="bulkitem",
            constraint=models.UniqueConstraint(fields=("operation", "row"), name="bulk_item_once"),
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
