"""The list of parked messages, for those who mend what sends them and those who look whether anything was lost."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations


def let_see(apps: Any, schema_editor: Any) -> None:
    # As in 0002: Django makes permissions after the last migration.
    workflows = apps.get_app_config("workflows")
    workflows.models_module = True
    create_permissions(workflows, verbosity=0, apps=apps, using=schema_editor.connection.alias)
    workflows.models_module = None

    Permission = apps.get_model("auth", "Permission")
    permission = Permission.objects.get(content_type__app_label="workflows", codename="view_parkedmessage")
    for group in apps.get_model("auth", "Group").objects.filter(name__in=["engineer", "auditor"]):
        group.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0015_parked_message"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [migrations.RunPython(let_see, migrations.RunPython.noop, elidable=False)]
