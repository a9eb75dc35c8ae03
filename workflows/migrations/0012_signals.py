"""A signal may be addressed by linking id, and answers one wait of each workflow: the wait says which signal it was."""

import django.db.models.deletion
from django.db import migrations, models

MOVE_ANSWERS = """
    UPDATE workflows_wait w SET signal_id = s.id FROM workflows_signal s WHERE s.answered_id = w.id;
    -- Two constraints follow: what was changed must not wait for its checks any more.
    SET CONSTRAINTS ALL IMMEDIATE;
"""
MOVE_ANSWERS_BACK = """
    UPDATE workflows_signal s SET answered_id = w.id FROM workflows_wait w WHERE w.signal_id = s.id;
    SET CONSTRAINTS ALL IMMEDIATE;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0011_children"),
    ]

    operations = [
        migrations.AddField(
            model_name="signal",
            name="ignored",
            field=models.BooleanField(db_default=False, help_text="Put aside: no wait asks for it any more."),
        ),
        migrations.AddField(
            model_name="signal",
            name="linking_id",
            field=models.CharField(max_length=200, null=True),
        ),
        migrations.AddField(
            model_name="wait",
            name="kind",
            field=models.CharField(
                choices=[
                    ("approval", "A person's decision"),
                    ("signal", "Signal"),
                    ("time", "Time"),
                    ("children", "Children"),
                ],
                db_default="approval",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="wait",
            name="signal",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="answers",
                to="workflows.signal",
            ),
        ),
        migrations.RunSQL(MOVE_ANSWERS, MOVE_ANSWERS_BACK),
        migrations.RemoveField(
            model_name="signal",
            name="answered",
        ),
        migrations.AlterField(
            model_name="signal",
            name="closed_at",
            field=models.DateTimeField(help_text="When it was used, or put aside.", null=True),
        ),
        migrations.AlterField(
            model_name="signal",
            name="source",
            field=models.CharField(help_text="The source that sent it.", max_length=150),
        ),
        migrations.AlterField(
            model_name="signal",
            name="workflow",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="signals",
                to="workflows.workflow",
            ),
        ),
        migrations.AddIndex(
            model_name="signal",
            index=models.Index(
                condition=models.Q(("closed_at", None), ("linking_id__isnull", False)),
                fields=["linking_id", "name"],
                name="signal_of_linking_id",
            ),
        ),
        migrations.AddIndex(
            model_name="wait",
            index=models.Index(
                condition=models.Q(("kind", "children"), ("outcome", ""), ("superseded", False)),
                fields=["workflow"],
                name="wait_for_children_open",
            ),
        ),
        migrations.AddConstraint(
            model_name="signal",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("linking_id__isnull", False), ("workflow", None)),
                    models.Q(("linking_id", None), ("workflow__isnull", False)),
                    _connector="OR",
                ),
                name="signal_has_one_address",
            ),
        ),
        migrations.AddConstraint(
            model_name="signal",
            constraint=models.CheckConstraint(
                condition=models.Q(("ignored", False), ("closed_at__isnull", False), _connector="OR"),
                name="signal_ignored_is_closed",
            ),
        ),
        migrations.AddConstraint(
            model_name="wait",
            constraint=models.UniqueConstraint(
                condition=models.Q(("signal", None), _negated=True),
                fields=("workflow", "signal"),
                name="wait_unique_signal",
            ),
        ),
    ]
