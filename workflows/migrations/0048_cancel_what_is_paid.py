"""To cancel what has been charged takes a permission of its own. All that could cancel get it, but the group `support`."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations


def let_cancel_what_is_paid(apps: Any, schema_editor: Any) -> None:
    # As in 0002: Django makes permissions after the last migration.
    database = schema_editor.connection.alias
    workflows = apps.get_app_config("workflows")
    was, workflows.models_module = getattr(workflows, "models_module", None), True
    create_permissions(workflows, verbosity=0, apps=apps, using=database)
    workflows.models_module = was

    permissions = (
        apps.get_model("auth", "Permission").objects.using(database).filter(content_type__app_label="workflows")
    )
    paid = permissions.get(codename="cancel_paid_workflow")
    may_cancel = permissions.filter(codename="cancel_workflow")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(permissions__in=may_cancel):
        if group.name != "support":
            group.permissions.add(paid)
    for user in apps.get_model("auth", "User").objects.using(database).filter(user_permissions__in=may_cancel):
        user.user_permissions.add(paid)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0046_tasks_are_assigned"),
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
                ],
            },
        ),
        migrations.RunPython(let_cancel_what_is_paid, migrations.RunPython.noop, elidable=False),
    ]
