"""The result of a call is written by a random token of its attempt: a server that took over gives ids out again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0018_signals_of_workflow"),
    ]

    operations = [
        migrations.AddField(
            model_name="effect",
            name="attempt_token",
            field=models.UUIDField(help_text="Empty while a release before this column wrote it last.", null=True),
        ),
    ]
