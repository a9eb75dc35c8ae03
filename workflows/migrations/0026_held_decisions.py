"""Decisions that can be undone: what their signal will say, until it is stored."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0025_pauses_and_teams")]

    operations = [
        migrations.AddField("ManualTask", "undoable", models.BooleanField(db_default=False)),
        migrations.AddField("ManualTask", "held", models.JSONField(null=True)),
    ]
