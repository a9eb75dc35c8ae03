"""What a step did is a word of a text, unless there is more to tell: an attempt takes a third of the bytes.

The column `steps` keeps its name, for the processes of the release before: they write all steps there, and find there what
failed or waits.
"""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0049_indexes_of_the_lists")]

    operations = [
        migrations.AlterField(
            "attempt",
            "steps",
            models.JSONField(db_column="steps", db_default=models.Value([], models.JSONField())),
        ),
        migrations.RenameField("attempt", "steps", "steps_in_full"),
        migrations.AddField(
            "attempt",
            "steps_in_short",
            models.TextField(db_default="", help_text="What each step did; a name alone is told in full."),
        ),
    ]
