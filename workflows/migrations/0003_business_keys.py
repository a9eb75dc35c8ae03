"""Beside the hash of a workflow's business key: its part among those of that key. And what history says of it."""

from django.db import migrations, models

from workflows.models import Event


class Migration(migrations.Migration):
    dependencies = [("workflows", "0002_groups")]

    operations = [
        migrations.AddField(
            "SearchKeyHash",
            "role",
            models.CharField(
                choices=[("holder", "Holder"), ("waiting", "Waiting"), ("former", "Former")], max_length=7, null=True
            ),
        ),
        # The database knows nothing of the choices.
        migrations.AlterField("Event", "kind", models.CharField(choices=Event.Kind.choices, max_length=30)),
    ]
