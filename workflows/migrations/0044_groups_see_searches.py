"""The searches, for those who see who looked for whom."""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations

PERMISSIONS = {"auditor": ["view_search"]}


def let_see(apps: Any, schema_editor: Any) -> None:
    # As in 0002: Django makes permissions after the last migration.
    database = schema_editor.connection.alias
    workflows = apps.get_app_config("workflows")
    was, workflows.models_module = getattr(workflows, "models_module", None), True
    create_permissions(workflows, verbosity=0, apps=apps, using=database)
    workflows.models_module = was

    permissions = apps.get_model("auth", "Permission").objects.using(database)
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=PERMISSIONS):
        ours = permissions.filter(content_type__app_label="workflows", codename__in=PERMISSIONS[group.name])
        group.permissions.add(*ours)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0043_searches"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(let_see, migrations.RunPython.noop, elidable=False)]
