"""Notices of bulk operations and erasures, and their events, belong to no workflow."""

from typing import Any

from django.db import migrations, models


def _workflow() -> "models.ForeignKey[Any, Any]":
    return models.ForeignKey(
        to="workflows.workflow",
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
    )


class Migration(migrations.Migration):
    dependencies = [("workflows", "0030_by_hand")]

    operations = [
        migrations.AlterField("Notice", "workflow", _workflow()),
        migrations.AlterField("OutboxEvent", "workflow", _workflow()),
    ]
