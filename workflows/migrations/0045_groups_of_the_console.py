"""The groups of the console: the support leads and the team `operations` come, with the engine's questions for it.

Groups that exist keep their members and what an operator has given or taken; one that was deleted stays so.
"""

from typing import Any

from django.contrib.auth.management import create_permissions
from django.db import migrations, transaction
from django.db.models import Q

SUPPORT = [
    *["view_workflow", "view_manualtask", "view_workerprocess", "view_service"],
    *["retry_workflow", "run_workflow_now", "follow_up_workflow", "cancel_workflow"],
]
NEW = {
    "support lead": [*SUPPORT, "resolve_manualtask"],
    "operations": ["view_workflow", "view_manualtask", "resolve_manualtask"],
}
MORE = {"engineer": ["resolve_manualtask"]}

OF_ENGINE = ["effect_in_doubt", "undo_in_doubt", "step_undeclared", "keeps_dying", "keeps_being_lost"]
# So many rows are locked at a time: a decision waits for them.
SLICE = 500


def make_groups(apps: Any, schema_editor: Any) -> None:
    # As in 0002: Django makes permissions after the last migration.
    database = schema_editor.connection.alias
    workflows = apps.get_app_config("workflows")
    was, workflows.models_module = getattr(workflows, "models_module", None), True
    create_permissions(workflows, verbosity=0, apps=apps, using=database)
    workflows.models_module = was

    groups = apps.get_model("auth", "Group").objects.using(database)
    permissions = apps.get_model("auth", "Permission").objects.using(database)
    for name in NEW:
        groups.get_or_create(name=name)
    given = {**NEW, **MORE}
    for group in groups.filter(name__in=given):
        ours = permissions.filter(content_type__app_label="workflows", codename__in=given[group.name])
        group.permissions.add(*ours)


def move_questions(apps: Any, schema_editor: Any) -> None:
    """Put the engine's open questions to the team, if anybody is in it. What somebody has claimed stays theirs."""
    database = schema_editor.connection.alias
    resolve = Q(codename="resolve_manualtask", content_type__app_label="workflows")
    ids = apps.get_model("auth", "Permission").objects.using(database).filter(resolve).values("pk")
    staff = apps.get_model("auth", "User").objects.using(database).filter(is_active=True, is_staff=True)
    if not staff.filter(Q(groups__permissions__in=ids) | Q(user_permissions__in=ids)).exists():
        return
    tasks = apps.get_model("workflows", "ManualTask").objects.using(database)
    movable = tasks.filter(state="open", team="", assignee=None, task_type__in=OF_ENGINE)
    last = 0
    while True:
        with transaction.atomic(using=database):
            found = movable.filter(pk__gt=last).order_by("pk").select_for_update(no_key=True)
            pks = list(found.values_list("pk", flat=True)[:SLICE])
            tasks.filter(pk__in=pks).update(team="operations")
        if not pks:
            return
        last = pks[-1]


class Migration(migrations.Migration):
    atomic = False  # the slices are transactions of their own, and so is what is made before them
    dependencies = [
        ("workflows", "0047_index_of_failures"),
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
                ],
            },
        ),
        migrations.RunPython(make_groups, migrations.RunPython.noop, atomic=True, elidable=False),
        migrations.RunPython(move_questions, migrations.RunPython.noop, elidable=False),
    ]
