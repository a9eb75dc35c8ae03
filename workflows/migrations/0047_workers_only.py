"""A worker's row says what it takes of its queue."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0045_words_on_the_screen")]

    operations = [
        migrations.AddField(
            model_name="workerprocess",
            name="only",
            field=models.CharField(
                db_default="",
                help_text="What it takes of the queue, such as compensation; empty for all.",
                max_length=20,
            ),
        ),
    ]
