"""The groups of the console's users: who may what. Made once; what an operator changes afterwards stays."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations

SUPPORT = [
    *["view_workflow", "view_manualtask", "view_workerprocess", "view_service", "view_bulkoperation", "view_pace"],
    *["retry_workflow", "run_workflow_now", "cancel_workflow", "follow_up_workflow", "acknowledge_workflow"],
]
# Whoever can retry one may retry a few at once; of many somebody with start_bulkoperation decides.
DECIDES = ["cancel_paid_workflow", "resolve_manualtask", "let_fail_service", "start_bulkoperation", "correct_workflow"]
GROUPS = {
    "support": SUPPORT,
    "support lead": [*SUPPORT, *DECIDES, "assign_manualtask", "reveal_workflow", "place_hold", "erase_workflow"],
    "operations": ["view_workflow", "view_manualtask", "resolve_manualtask"],
    "approver": ["view_workflow", "view_manualtask", "decide_manualtask"],
    "engineer": [
        *[*SUPPORT, *DECIDES],
        *["view_attempt", "view_event", "view_wait", "view_signal", "view_apikey", "view_undeliveredmessage"],
        *["view_outboxevent", "revoke_apikey", "hold_service", "try_service", "set_pace", "settle_undeliveredmessage"],
    ],
    "auditor": [
        *["view_workflow", "view_manualtask", "view_event", "view_apikey", "view_undeliveredmessage", "view_service"],
        *["view_search", "view_bulkoperation", "view_pace", "view_outboxevent", "view_audit", "place_hold"],
    ],
}


def create_groups(apps: Any, schema_editor: Any) -> None:
    grant(apps, schema_editor, GROUPS)


def grant(apps: Any, schema_editor: Any, groups: Mapping[str, Sequence[str]]) -> None:
    """Give permissions to groups, by their names; a group that is missing is made."""
    database = schema_editor.connection.alias
    # Django creates permissions after the last migration: a new database has none of them yet.
    workflows = apps.get_app_config("workflows")
    workflows.models_module = True  # without one create_permissions skips the app
    create_permissions(workflows, verbosity=0, apps=apps, using=database)
    workflows.models_module = None

    permissions = apps.get_model("auth", "Permission").objects.using(database)
    for name, codenames in groups.items():
        group, _ = apps.get_model("auth", "Group").objects.using(database).get_or_create(name=name)
        group.permissions.add(*permissions.filter(content_type__app_label="workflows", codename__in=codenames))


class Migration(migrations.Migration):
    replaces = [("workflows", "0002_groups")]
    dependencies = [
        ("workflows", "0002_guards"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [migrations.RunPython(create_groups, migrations.RunPython.noop)]
