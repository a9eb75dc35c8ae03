"""Tasks are assigned to colleagues: the history tells of it, and support leads may assign any."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations, models


def let_assign(apps: Any, schema_editor: Any) -> None:
    # As in 0002: Django makes permissions after the last migration.
    database = schema_editor.connection.alias
    workflows = apps.get_app_config("workflows")
    was, workflows.models_module = getattr(workflows, "models_module", None), True
    create_permissions(workflows, verbosity=0, apps=apps, using=database)
    workflows.models_module = was

    permissions = apps.get_model("auth", "Permission").objects.using(database)
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name="support lead"):
        group.permissions.add(*permissions.filter(content_type__app_label="workflows", codename="assign_manualtask"))


KINDS = [
    ("completed", "Completed"),
    ("failed", "Failed"),
    ("retry_scheduled", "Retry scheduled"),
    ("waiting", "Waiting"),
    ("parked", "Parked"),
    ("put_back", "Paused"),
    ("vanished", "Worker vanished"),
    ("crashed", "Worker crashed"),
    ("killed", "Worker killed"),
    ("interrupted", "Worker interrupted"),
    ("lost", "Attempt lost"),
    ("best_effort_failed", "Best-effort step failed"),
    ("followed_up", "Followed up"),
    ("follow_up_failed", "Follow-up failed"),
    ("follow_up_given_up", "Follow-up given up"),
    ("follow_up_asked", "Run again"),
    ("task_claimed", "Task claimed"),
    ("task_assigned", "Task assigned"),
    ("task_released", "Task released"),
    ("approved", "Approved"),
    ("rejected", "Rejected"),
    ("expired", "Expired"),
    ("taken_back", "Answer taken back"),
    ("retried", "Retried"),
    ("run_now", "Run now"),
    ("cancel_requested", "Cancellation requested"),
    ("cancel_too_late", "Too late to cancel"),
    ("cancelled", "Cancelled"),
    ("compensating", "Reversal began"),
    ("undo_failed", "Reversal failed"),
    ("compensated", "Reversed"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0045_groups_of_the_console"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="manualtask",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("decide_manualtask", "Can approve or reject a manual task"),
                    ("resolve_manualtask", "Can answer the questions to the team operations"),
                    ("assign_manualtask", "Can assign any manual task to whoever may decide it"),
                ],
            },
        ),
        migrations.AlterField(
            model_name="event",
            name="kind",
            field=models.CharField(choices=KINDS, max_length=30),
        ),
        migrations.RunPython(let_assign, migrations.RunPython.noop, elidable=False),
    ]
