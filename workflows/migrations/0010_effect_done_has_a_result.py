"""The constraint compared with JSON's null, where a result that is missing is SQL's: it never refused anything."""

from typing import Any

from django.db import migrations, models


def doubt_what_has_no_result(apps: Any, schema_editor: Any) -> None:
    effects = apps.get_model("workflows", "Effect").objects.filter(state="done", result__isnull=True)
    effects.update(state="unknown")


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0009_groups_may_cancel"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="effect",
            name="effect_done_has_a_result",
        ),
        migrations.RunPython(doubt_what_has_no_result, migrations.RunPython.noop, elidable=True),
        migrations.AddConstraint(
            model_name="effect",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("state", "done"), _negated=True), ("result__isnull", False), _connector="OR"
                ),
                name="effect_done_has_a_result",
            ),
        ),
    ]
