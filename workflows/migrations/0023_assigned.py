"""Who looks after the failures of a cause; and which tasks a support lead was asked to see to."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import workflows.models.clock
from workflows.models import Event


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0022_corrections"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="AssignedCause",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("workflow_type", models.TextField()),
                ("step", models.TextField()),
                ("code", models.TextField()),
                ("release", models.TextField()),
                ("at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                (
                    "assignee",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to=settings.AUTH_USER_MODEL
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        fields=("workflow_type", "step", "code", "release"), name="assigned_cause_once"
                    )
                ],
            },
        ),
        migrations.AddField("ManualTask", "lead_asked_at", models.DateTimeField(null=True)),
        migrations.AlterField("Event", "kind", models.CharField(max_length=30, choices=Event.Kind.choices)),
    ]
