"""Confirmations: what lets a charge be made again takes two people, and the database holds that."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

from workflows.models import Confirmation
from workflows.models.clock import ClockTimestamp

# Its messages hold no value of the row: the server may log them. It sets the times: nobody makes eight hours of one.
GUARD = """
CREATE FUNCTION workflows_guard_confirmation() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'asked' OR NEW.decided_by_id IS NOT NULL OR NEW.reviewed_by_id IS NOT NULL THEN
            RAISE EXCEPTION 'a confirmation is asked for before it is decided' USING ERRCODE = 'check_violation';
        END IF;
        NEW.asked_at := clock_timestamp();
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.workflow_id, NEW.task_id, NEW.decision, NEW.answer, NEW.asked_by_id, NEW.asked_at)
       IS DISTINCT FROM
       (OLD.id, OLD.workflow_id, OLD.task_id, OLD.decision, OLD.answer, OLD.asked_by_id, OLD.asked_at)
       OR NEW.reason NOT IN (OLD.reason, '') THEN
        RAISE EXCEPTION 'what was asked for stays as it was asked' USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.state <> 'asked' THEN
        IF (NEW.state, NEW.decided_by_id, NEW.decided_at, NEW.alone) IS DISTINCT FROM
           (OLD.state, OLD.decided_by_id, OLD.decided_at, OLD.alone)
           OR OLD.reviewed_by_id IS NOT NULL AND NEW.reviewed_by_id IS DISTINCT FROM OLD.reviewed_by_id THEN
            RAISE EXCEPTION 'a confirmation is decided once, and reviewed once' USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    NEW.decided_at := CASE WHEN NEW.state = 'asked' THEN NULL ELSE clock_timestamp() END;
    IF NEW.state = 'confirmed' THEN
        IF EXISTS (SELECT FROM {users} u WHERE u.id IN (NEW.asked_by_id, NEW.decided_by_id)
                      AND NOT (u.is_active AND u.is_staff)) THEN
            RAISE EXCEPTION 'an account that is closed confirms nothing' USING ERRCODE = 'check_violation';
        END IF;
        IF NOT NEW.alone AND EXISTS (SELECT FROM {users} u
                                      WHERE u.id = NEW.decided_by_id
                                        AND u.date_joined > clock_timestamp() - interval '24 hours') THEN
            RAISE EXCEPTION 'an account of today confirms nothing' USING ERRCODE = 'check_violation';
        END IF;
        IF NOT NEW.alone AND EXISTS (SELECT FROM {users} a JOIN {users} b ON lower(btrim(a.email)) = lower(btrim(b.email))
                                      WHERE a.id = NEW.asked_by_id AND b.id = NEW.decided_by_id
                                        AND btrim(a.email) <> '') THEN
            RAISE EXCEPTION 'another person confirms' USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
    CREATE TRIGGER confirmation_guard BEFORE INSERT OR UPDATE ON workflows_confirmation
           FOR EACH ROW EXECUTE FUNCTION workflows_guard_confirmation()"""


def guard(apps: Any, schema_editor: Any) -> None:
    """The users are those of AUTH_USER_MODEL, whatever their table is called."""
    users = apps.get_model(settings.AUTH_USER_MODEL)._meta.db_table
    schema_editor.execute(GUARD.format(users=schema_editor.quote_name(users)), params=None)


def user(*, null: bool = False) -> Any:
    to, kept = settings.AUTH_USER_MODEL, models.PROTECT
    return models.ForeignKey(to=to, on_delete=kept, null=null, related_name="+", db_index=False)


def row_of(to: str, related_name: str, *, null: bool = False) -> Any:
    return models.ForeignKey(
        to=to,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=null,
        related_name=related_name,
    )


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0020_api_key_bounds"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "Confirmation",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("decision", models.CharField(max_length=10)),
                ("answer", models.JSONField(null=True)),
                ("reason", models.TextField()),
                ("state", models.CharField(choices=Confirmation.State.choices, db_default="asked", max_length=9)),
                ("asked_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("decided_at", models.DateTimeField(null=True)),
                ("alone", models.BooleanField(db_default=False)),
                ("asked_by", user()),
                ("decided_by", user(null=True)),
                ("reviewed_by", user(null=True)),
                ("task", row_of("workflows.manualtask", "+", null=True)),
                ("workflow", row_of("workflows.workflow", "confirmations")),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["workflow"], name="confirmation_of_workflow"),
                    models.Index(
                        condition=Q(state="asked", task=None), fields=["asked_at", "id"], name="confirmation_open"
                    ),
                    models.Index(
                        condition=Q(alone=True, reviewed_by=None),
                        fields=["asked_at", "id"],
                        name="confirmation_to_review",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=Q(state="asked"), fields=["workflow"], name="confirmation_one_open"
                    ),
                    models.CheckConstraint(
                        name="confirmation_four_eyes",
                        condition=~Q(state="confirmed")
                        | Q(decided_by__isnull=False, alone=False) & ~Q(decided_by=F("asked_by"))
                        | Q(decided_by=F("asked_by"), alone=True, decided_at__gte=F("asked_at") + timedelta(hours=8)),
                    ),
                    models.CheckConstraint(
                        name="confirmation_reviewed_by_another",
                        condition=Q(reviewed_by=None) | Q(alone=True) & ~Q(reviewed_by=F("decided_by")),
                    ),
                ],
            },
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
        migrations.RunSQL(migrations.RunSQL.noop, "DROP FUNCTION workflows_guard_confirmation CASCADE"),
    ]
