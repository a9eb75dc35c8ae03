"""A workflow's row says whether it has begun. Of those under way it is said when they are next decided, or woken."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0029_effect_call_number")]

    operations = [
        migrations.AddField(
            "workflow",
            "begun",
            models.BooleanField(
                db_default=False,
                help_text="An attempt has been decided: it goes before the workflows that have not begun.",
            ),
        ),
    ]
