"""The groups of the console's users: who may what. Made once; what an operator changes afterwards stays."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations

GROUPS = {
    "support": ["view_workflow", "view_manualtask", "retry_workflow", "run_workflow_now"],
    "approver": ["view_workflow", "view_manualtask", "decide_manualtask"],
    "engineer": [
        *["view_workflow", "view_manualtask", "view_attempt", "view_event", "view_wait", "view_signal", "view_apikey"],
        *["retry_workflow", "run_workflow_now", "revoke_apikey"],
    ],
    "auditor": ["view_workflow", "view_manualtask", "view_event", "view_apikey"],
}


def create_groups(apps: Any, schema_editor: Any) -> None:
    # Django makes permissions after the last migration; on a fresh database they are not there yet.
    workflows = apps.get_app_config("workflows")
    workflows.models_module = True  # without one create_permissions passes an app over
    create_permissions(workflows, verbosity=0, apps=apps, using=schema_editor.connection.alias)
    workflows.models_module = None

    Group = apps.get_model("auth", "Group")
    Permission = apps.get_model("auth", "Permission")
    for name, codenames in GROUPS.items():
        group, _ = Group.objects.get_or_create(name=name)
        permissions = Permission.objects.filter(content_type__app_label="workflows", codename__in=codenames)
        group.permissions.add(*permissions)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(create_groups, migrations.RunPython.noop, elidable=False)]
