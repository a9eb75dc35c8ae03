"""A workflow may have a parent; a retry knows the signals that it has seen."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0010_effect_done_has_a_result"),
    ]

    operations = [
        migrations.AddField(
            model_name="workflow",
            name="child_key",
            field=models.CharField(db_default="", help_text="What its parent calls it.", max_length=200),
        ),
        migrations.AddField(
            model_name="workflow",
            name="parent",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="children",
                to="workflows.workflow",
            ),
        ),
        migrations.AddField(
            model_name="workflow",
            name="parent_wait",
            field=models.CharField(db_default="", max_length=200),
        ),
        migrations.AddField(
            model_name="workflow",
            name="seen_signals",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(),
                db_default=models.Value("{}"),
                help_text="Signals of those names that wake it no more.",
                size=None,
            ),
        ),
        migrations.AddIndex(
            model_name="workflow",
            index=models.Index(
                condition=models.Q(("status", "PENDING"), models.Q(("parent", None), _negated=True)),
                fields=["parent", "parent_wait"],
                name="workflow_children_pending",
            ),
        ),
        migrations.AddIndex(
            model_name="workflow",
            index=models.Index(
                condition=models.Q(
                    ("status", "PENDING"),
                    models.Q(("linking_id", None), _negated=True),
                    models.Q(("wake_on", []), _negated=True),
                ),
                fields=["linking_id"],
                name="workflow_listening",
            ),
        ),
        migrations.AddConstraint(
            model_name="workflow",
            constraint=models.UniqueConstraint(
                condition=models.Q(("parent", None), _negated=True),
                fields=("parent", "parent_wait", "child_key"),
                name="workflow_unique_child",
            ),
        ),
    ]
