"""The trace that a client sent a workflow in, which its attempts continue."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0009_chore_deaths")]

    operations = [
        migrations.AddField("workflow", "traceparent", models.CharField(max_length=55, db_default="")),
    ]
