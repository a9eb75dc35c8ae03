"""The rollup's tables, and the transaction ids by which it knows what is new.

What is there already has none, so it is not counted. A default that the column was added with would give all of these
rows the id of this very transaction: they would be counted in one slice.
"""

import django.contrib.postgres.fields
from django.db import migrations, models

from workflows.models.rollup import Grain, Metric
from workflows.models.xids import CurrentTransactionId, Snapshot, TransactionId


class Migration(migrations.Migration):
    dependencies = [("workflows", "0008_request_id_index")]

    operations = [
        migrations.CreateModel(
            "Rollup",
            [
                (
                    "pk",
                    models.CompositePrimaryKey(
                        *("grain", "metric", "at", "workflow_type", "step", "outcome", "code"),
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("grain", models.CharField(max_length=6, choices=Grain.choices)),
                ("metric", models.CharField(max_length=20, choices=Metric.choices)),
                ("at", models.DateTimeField()),
                ("workflow_type", models.CharField(max_length=100)),
                ("step", models.CharField(max_length=100)),
                ("outcome", models.CharField(max_length=30)),
                ("code", models.CharField(max_length=200)),
                ("count", models.BigIntegerField()),
                ("seconds", models.FloatField()),
                ("buckets", django.contrib.postgres.fields.ArrayField(models.BigIntegerField())),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            "RollupProgress",
            [
                ("name", models.CharField(max_length=20, primary_key=True, serialize=False)),
                ("seen", Snapshot()),
                ("server", models.CharField(db_default="", max_length=30)),
                ("workflow_floor", models.BigIntegerField(db_default=0)),
                ("attempt_floor", models.BigIntegerField(db_default=0)),
                ("event_floor", models.BigIntegerField(db_default=0)),
            ],
            options={"default_permissions": ()},
        ),
        # The rows of a total, and of today, are updated every few seconds: on their own pages.
        migrations.RunSQL("ALTER TABLE workflows_rollup SET (fillfactor = 50)", migrations.RunSQL.noop),
        migrations.AddField("Attempt", "due_since", models.DateTimeField(null=True)),
        migrations.AddField("Attempt", "closed_xid", TransactionId(null=True)),
        migrations.AddField("Attempt", "corrected_xid", TransactionId(null=True)),
        migrations.AddField("Event", "finished_xid", TransactionId(null=True)),
        migrations.AddField("Workflow", "entered_xid", TransactionId(null=True)),
        migrations.AlterField("Workflow", "entered_xid", TransactionId(null=True, db_default=CurrentTransactionId())),
    ]
