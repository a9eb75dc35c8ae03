"""A parked message is called an undelivered one: workflows can be parked, and one word must not stand for two things.

A `consumekafka` of the release before finds no table: it waits, and loses nothing, until it is replaced.
"""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations, models


def let_see(apps: Any, schema_editor: Any) -> None:
    """Whoever could see the list still can: Django renames the model and its content type, and not its permission."""
    database = schema_editor.connection.alias
    permissions = apps.get_model("auth", "Permission").objects.using(database)
    ours = permissions.filter(content_type__app_label="workflows")
    renamed = {"codename": "view_undeliveredmessage", "name": "Can view undelivered message"}
    ours.filter(codename="view_parkedmessage").update(**renamed)

    # As in 0002: Django makes permissions after the last migration.
    workflows = apps.get_app_config("workflows")
    was, workflows.models_module = getattr(workflows, "models_module", None), True
    create_permissions(workflows, verbosity=0, apps=apps, using=database)
    workflows.models_module = was

    permission = ours.get(codename="view_undeliveredmessage")
    for group in apps.get_model("auth", "Group").objects.using(database).filter(name__in=["engineer", "auditor"]):
        group.permissions.add(permission)


def rename_back(apps: Any, schema_editor: Any) -> None:
    permissions = apps.get_model("auth", "Permission").objects.using(schema_editor.connection.alias)
    ours = permissions.filter(content_type__app_label="workflows", codename="view_undeliveredmessage")
    ours.update(codename="view_parkedmessage", name="Can view parked message")


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0020_answers_taken_back"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.RenameModel("ParkedMessage", "UndeliveredMessage"),
        migrations.RunSQL(  # what an error names: PostgreSQL renames the table alone
            "ALTER INDEX workflows_parkedmessage_pkey RENAME TO workflows_undeliveredmessage_pkey",
            "ALTER INDEX workflows_undeliveredmessage_pkey RENAME TO workflows_parkedmessage_pkey",
        ),
        migrations.RemoveConstraint("undeliveredmessage", "parked_once"),
        migrations.AddConstraint(
            "undeliveredmessage",
            models.UniqueConstraint(fields=("topic", "partition", "offset"), name="undelivered_once"),
        ),
        migrations.RunPython(let_see, rename_back, elidable=False),
    ]
