"""The page of a workflow shows its signals, also those that were used or put aside."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0017_events_of_tasks"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="signal",
            index=models.Index(
                condition=models.Q(("workflow", None), _negated=True),
                fields=["workflow", "id"],
                name="signal_of_workflow",
            ),
        ),
    ]
