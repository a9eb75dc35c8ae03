"""Who may acknowledge a failure: those who may retry. Groups that do not exist are not made."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations

GROUPS = ["support", "support lead", "engineer"]


def let_acknowledge(apps: Any, schema_editor: Any) -> None:
    # As in 0002: Django makes permissions after the last migration.
    database = schema_editor.connection.alias
    workflows = apps.get_app_config("workflows")
    was, workflows.models_module = getattr(workflows, "models_module", None), True
    create_permissions(workflows, verbosity=0, apps=apps, using=database)
    workflows.models_module = was

    permissions = apps.get_model("auth", "Permission").objects.using(database)
    ours = permissions.filter(content_type__app_label="workflows", codename="acknowledge_workflow")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=GROUPS):
        group.permissions.add(*ours)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0048_failures_are_acknowledged"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="workflow",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("retry_workflow", "Can retry a failed workflow"),
                    ("run_workflow_now", "Can run a waiting workflow now"),
                    ("cancel_workflow", "Can cancel a workflow that has charged nothing"),
                    ("cancel_paid_workflow", "Can cancel a workflow whatever it has charged"),
                    ("follow_up_workflow", "Can have a failed best-effort step of a complete workflow run again"),
                    ("acknowledge_workflow", "Can acknowledge what has failed, or was given up"),
                ],
            },
        ),
        migrations.RunPython(let_acknowledge, migrations.RunPython.noop, elidable=False),
    ]
