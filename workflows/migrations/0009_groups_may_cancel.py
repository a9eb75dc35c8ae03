"""Who may cancel: those who may retry."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations


def let_cancel(apps: Any, schema_editor: Any) -> None:
    # As in 0002: Django makes permissions after the last migration.
    workflows = apps.get_app_config("workflows")
    workflows.models_module = True
    create_permissions(workflows, verbosity=0, apps=apps, using=schema_editor.connection.alias)
    workflows.models_module = None

    Permission = apps.get_model("auth", "Permission")
    permission = Permission.objects.get(content_type__app_label="workflows", codename="cancel_workflow")
    for group in apps.get_model("auth", "Group").objects.filter(name__in=["support", "engineer"]):
        group.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0008_compensation"),
        ("auth", "0012_alter_user_first_name_max_length"),
    ]

    operations = [migrations.RunPython(let_cancel, migrations.RunPython.noop, elidable=False)]
