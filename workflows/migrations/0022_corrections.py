"""Corrections of what was sent: who may ask for one, and who approves it, is for the database to refuse, too."""

from importlib import import_module
from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import workflows.models.clock

GROUPS = {"support lead": ["correct_workflow"], "engineer": ["correct_workflow"]}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


# Whether a user may ask or approve: active staff with an e-mail address, who was made a day ago or earlier, and to whom
# somebody gave the permission, directly or by a group. To be a superuser is not enough.
_MAY_CORRECT = """
CREATE FUNCTION workflows_may_correct(who integer) RETURNS boolean STABLE LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT FROM auth_user u, auth_permission p JOIN django_content_type t ON t.id = p.content_type_id
         WHERE u.id = who AND u.is_active AND u.is_staff AND btrim(u.email) <> ''
           AND u.date_joined <= clock_timestamp() - interval '24 hours'
           AND t.app_label = 'workflows' AND p.codename = 'correct_workflow'
           AND (EXISTS (SELECT FROM auth_user_user_permissions own
                         WHERE own.user_id = u.id AND own.permission_id = p.id)
             OR EXISTS (SELECT FROM auth_user_groups g JOIN auth_group_permissions gp ON gp.group_id = g.group_id
                         WHERE g.user_id = u.id AND gp.permission_id = p.id)))
$$"""

# Its messages hold no value of the row: the server may log them.
_GUARD = """
CREATE FUNCTION workflows_guard_correction() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'asked' OR NEW.decided_by_id IS NOT NULL THEN
            RAISE EXCEPTION 'a correction is asked for before it is decided' USING ERRCODE = 'check_violation';
        END IF;
    ELSIF OLD.state <> 'asked' OR NEW.state = 'asked' THEN
        RAISE EXCEPTION 'a correction is decided once, and not changed' USING ERRCODE = 'check_violation';
    ELSIF (NEW.id, NEW.workflow_id, NEW.of_failure, NEW.told, NEW.reason, NEW.asked_by_id, NEW.asked_at)
          IS DISTINCT FROM
          (OLD.id, OLD.workflow_id, OLD.of_failure, OLD.told, OLD.reason, OLD.asked_by_id, OLD.asked_at) THEN
        RAISE EXCEPTION 'what was asked for stays as it was asked' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state IN ('asked', 'approved') AND NOT workflows_may_correct(NEW.asked_by_id) THEN
        RAISE EXCEPTION 'this user may not ask for a correction' USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state = 'approved' THEN
        IF NEW.decided_by_id IS NULL OR NOT workflows_may_correct(NEW.decided_by_id) THEN
            RAISE EXCEPTION 'this user may not approve a correction' USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT FROM auth_user a JOIN auth_user b ON lower(btrim(a.email)) = lower(btrim(b.email))
                    WHERE a.id = NEW.asked_by_id AND b.id = NEW.decided_by_id) THEN
            RAISE EXCEPTION 'another person approves a correction' USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$"""
_TRIGGER = """
CREATE TRIGGER correction_guard BEFORE INSERT OR UPDATE ON workflows_correction
   FOR EACH ROW EXECUTE FUNCTION workflows_guard_correction()"""


class Migration(migrations.Migration):
    dependencies = [
        ("auth", "0012_alter_user_first_name_max_length"),
        ("workflows", "0021_data_keys"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
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
                    ("correct_workflow", "Can ask for a correction of what was sent, and approve a colleague's"),
                ],
            },
        ),
        migrations.CreateModel(
            name="OriginalPayload",
            fields=[
                (
                    "workflow",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="workflows.workflow",
                    ),
                ),
                ("payload", models.JSONField()),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            name="Correction",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("of_failure", models.DateTimeField()),
                ("proposed", models.JSONField(null=True)),
                ("told", models.JSONField()),
                ("reason", models.TextField()),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("asked", "Waits for a second person"),
                            ("approved", "Approved"),
                            ("refused", "Refused"),
                            ("withdrawn", "Withdrawn"),
                            ("stale", "No longer asked"),
                        ],
                        db_default="asked",
                        max_length=9,
                    ),
                ),
                ("asked_at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("decided_at", models.DateTimeField(null=True)),
                (
                    "asked_by",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "decided_by",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "workflow",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="corrections",
                        to="workflows.workflow",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("state", "asked")), fields=["asked_at", "id"], name="correction_open"
                    ),
                    models.Index(fields=["workflow"], name="correction_of_workflow"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "asked")), fields=("workflow",), name="correction_one_open"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state", "approved"), _negated=True),
                            models.Q(
                                ("decided_by__isnull", False),
                                models.Q(("decided_by", models.F("asked_by")), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="correction_four_eyes",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("proposed__isnull", False), ("state", "asked")),
                            models.Q(models.Q(("state", "asked"), _negated=True), ("proposed__isnull", True)),
                            _connector="OR",
                        ),
                        name="correction_emptied",
                    ),
                ],
            },
        ),
        migrations.RunSQL(_MAY_CORRECT, "DROP FUNCTION workflows_may_correct"),
        migrations.RunSQL(_GUARD, "DROP FUNCTION workflows_guard_correction"),
        migrations.RunSQL(_TRIGGER, "DROP TRIGGER correction_guard ON workflows_correction"),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
