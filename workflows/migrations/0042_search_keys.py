"""The search keys of workflows, as hashes: by e-mail address, by phone number."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0041_who_runs_again")]

    operations = [
        migrations.CreateModel(
            name="SearchKeyHash",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hash", "workflow_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("hash", models.BinaryField()),
                ("key_id", models.IntegerField(help_text="Which of SEARCH_KEYS it was made with.")),
                (
                    "workflow",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="search_key_hashes",
                        to="workflows.workflow",
                    ),
                ),
            ],
            options={"db_table": "workflows_searchkey", "default_permissions": ()},
        ),
    ]
