"""Messages of a topic that cannot become signals."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0014_webhook_secret"),
    ]

    operations = [
        migrations.CreateModel(
            name="ParkedMessage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("topic", models.CharField(max_length=249)),
                ("partition", models.IntegerField()),
                ("offset", models.BigIntegerField()),
                ("code", models.CharField(help_text="Why, as a stable word.", max_length=100)),
                ("reason", models.TextField(help_text="Why, for people; nothing of the content.")),
                ("key", models.BinaryField(null=True)),
                ("value", models.BinaryField(null=True)),
                ("headers", models.JSONField(db_default=models.Value([], models.JSONField()))),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "default_permissions": ("view",),
            },
        ),
        migrations.AddConstraint(
            model_name="parkedmessage",
            constraint=models.UniqueConstraint(fields=("topic", "partition", "offset"), name="parked_once"),
        ),
    ]
