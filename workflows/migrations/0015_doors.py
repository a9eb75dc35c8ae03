import django.contrib.postgres.fields
from django.db import migrations, models

import workflows.models.clock


class Migration(migrations.Migration):
    """What the door of a queue refuses is kept, sealed; and who stands at the doors says that it lives."""

    dependencies = [("workflows", "0014_withdraw_private")]

    operations = [
        migrations.AddField(
            model_name="erasure",
            name="messages",
            field=django.contrib.postgres.fields.ArrayField(base_field=models.BigIntegerField(), null=True, size=None),
        ),
        migrations.AddField(
            model_name="undeliveredmessage",
            name="hashes",
            field=django.contrib.postgres.fields.ArrayField(base_field=models.BinaryField(), null=True, size=None),
        ),
        migrations.AddField(model_name="undeliveredmessage", name="idempotency_key", field=models.UUIDField(null=True)),
        migrations.AddField(
            model_name="undeliveredmessage", name="left_with_broker", field=models.IntegerField(db_default=0)
        ),
        migrations.AddConstraint(
            model_name="undeliveredmessage",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("topic__startswith", "submissions:"), _negated=True),
                    ("content", []),
                    models.lookups.StartsWith(
                        models.functions.Cast("content", models.TextField()), models.Value('"sealed:')
                    ),
                    _connector="OR",
                ),
                name="refused_is_sealed",
            ),
        ),
        migrations.CreateModel(
            name="SideProcess",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("host", models.CharField(max_length=150)),
                ("pid", models.PositiveIntegerField()),
                ("release", models.CharField(max_length=100)),
                ("kind", models.CharField(choices=[("consumer", "Consumer"), ("relay", "Relay")], max_length=8)),
                (
                    "takes",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=249), size=None),
                ),
                ("started_at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("last_seen", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("last_message_at", models.DateTimeField(null=True)),
                ("stopped_at", models.DateTimeField(null=True)),
                ("ended_how", models.CharField(db_default="", max_length=50)),
            ],
            options={"default_permissions": ()},
        ),
    ]
