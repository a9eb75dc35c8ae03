"""Who has looked for a workflow, and as what."""

import django.contrib.postgres.fields
from django.db import migrations, models

import workflows.models.clock


class Migration(migrations.Migration):
    dependencies = [("workflows", "0042_search_keys")]

    operations = [
        migrations.CreateModel(
            name="Search",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("actor", models.CharField(max_length=150)),
                (
                    "tried",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=100),
                        help_text="What the text could have been, such as email.",
                        size=None,
                    ),
                ),
                (
                    "hits",
                    models.PositiveIntegerField(
                        help_text="Workflows found; one more than is shown means that there are more."
                    ),
                ),
            ],
            options={
                "default_permissions": ("view",),
                "indexes": [models.Index(fields=["actor", "-id"], name="search_of_actor")],
            },
        ),
    ]
