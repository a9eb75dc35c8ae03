"""Manual tasks in full: team, assignee, form, due time, outcome of an expiry, four eyes."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0012_signals"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="manualtask",
            name="answer_model",
            field=models.CharField(
                db_default="",
                help_text="Dotted path of the Pydantic model of the answer; empty for a yes or no.",
                max_length=300,
            ),
        ),
        migrations.AddField(
            model_name="manualtask",
            name="assignee",
            field=models.ForeignKey(
                help_text="The user who has claimed it.",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to=settings.AUTH_USER_MODEL,
            ),
        ),
        migrations.AddField(
            model_name="manualtask",
            name="claimed_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="manualtask",
            name="due_at",
            field=models.DateTimeField(help_text="When it ought to be decided.", null=True),
        ),
        migrations.AddField(
            model_name="manualtask",
            name="four_eyes",
            field=models.BooleanField(db_default=False, help_text="The user who requested it may not decide it."),
        ),
        migrations.AddField(
            model_name="manualtask",
            name="on_expiry",
            field=models.CharField(
                db_default="expired",
                help_text="What it counts as when no user decides: expired, approved, rejected.",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="manualtask",
            name="requested_by",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.PROTECT, related_name="+", to=settings.AUTH_USER_MODEL
            ),
        ),
        migrations.AddField(
            model_name="manualtask",
            name="team",
            field=models.CharField(
                db_default="", help_text="Name of the group that decides; empty for all.", max_length=150
            ),
        ),
        migrations.AddConstraint(
            model_name="manualtask",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("four_eyes", False),
                    models.Q(
                        ("requested_by__isnull", False),
                        models.Q(
                            ("decided_by", None),
                            models.Q(("decided_by", models.F("requested_by")), _negated=True),
                            _connector="OR",
                        ),
                    ),
                    _connector="OR",
                ),
                name="manual_task_four_eyes",
            ),
        ),
        migrations.AddConstraint(
            model_name="manualtask",
            constraint=models.CheckConstraint(
                condition=models.Q(("on_expiry__in", ["expired", "approved", "rejected"])),
                name="manual_task_on_expiry_is_known",
            ),
        ),
    ]
