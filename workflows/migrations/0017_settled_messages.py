"""Undelivered messages that were redelivered, or discarded; and who may do that."""

from importlib import import_module
from typing import Any

from django.db import migrations, models

GROUPS = {"engineer": ["settle_undeliveredmessage"]}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


class Migration(migrations.Migration):
    dependencies = [("workflows", "0016_tenants")]

    operations = [
        migrations.AlterModelOptions(
            name="undeliveredmessage",
            options={
                "default_permissions": ("view",),
                "permissions": [("settle_undeliveredmessage", "Can redeliver or discard an undelivered message")],
            },
        ),
        migrations.AddField(
            model_name="undeliveredmessage",
            name="state",
            field=models.CharField(
                blank=True,
                choices=[("", "Undelivered"), ("redelivered", "Redelivered"), ("discarded", "Discarded")],
                db_default="",
                max_length=11,
            ),
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
