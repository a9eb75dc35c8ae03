"""The operator's API: keys with a person behind them, and proposals, which another person decides."""

from importlib import import_module
from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

from workflows.models import Proposal
from workflows.models.clock import ClockTimestamp

# Its messages hold no value of the row: the server may log them.
GUARD = """
CREATE FUNCTION workflows_guard_proposal() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'asked' OR NEW.decided_by_id IS NOT NULL THEN
            RAISE EXCEPTION 'a proposal is made before it is decided' USING ERRCODE = 'check_violation';
        END IF;
        IF NOT EXISTS (SELECT FROM workflows_apikey k WHERE k.id = NEW.api_key_id AND k.person_id = NEW.asked_by_id) THEN
            RAISE EXCEPTION 'a key proposes for its own person' USING ERRCODE = 'check_violation';
        END IF;
        NEW.asked_at := clock_timestamp();
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.verb, NEW.row, NEW.workflow_id, NEW.seen, NEW.api_key_id, NEW.asked_by_id, NEW.asked_at,
        NEW.lapses_at, NEW.idempotency_key)
       IS DISTINCT FROM
       (OLD.id, OLD.verb, OLD.row, OLD.workflow_id, OLD.seen, OLD.api_key_id, OLD.asked_by_id, OLD.asked_at,
        OLD.lapses_at, OLD.idempotency_key)
       OR NEW.reason NOT IN (OLD.reason, '') THEN
        RAISE EXCEPTION 'what was proposed stays as it was proposed' USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.state <> 'asked' THEN
        IF (NEW.state, NEW.decided_by_id, NEW.decided_at) IS DISTINCT FROM
           (OLD.state, OLD.decided_by_id, OLD.decided_at) THEN
            RAISE EXCEPTION 'a proposal is decided once' USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    NEW.decided_at := CASE WHEN NEW.state = 'asked' THEN NULL ELSE clock_timestamp() END;
    IF NEW.state = 'approved' THEN
        IF NEW.lapses_at <= clock_timestamp() THEN
            RAISE EXCEPTION 'a proposal that has lapsed is not approved' USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT FROM {users} u WHERE u.id IN (NEW.asked_by_id, NEW.decided_by_id)
                      AND NOT (u.is_active AND u.is_staff)) THEN
            RAISE EXCEPTION 'an account that is closed approves nothing' USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT FROM {users} u WHERE u.id = NEW.decided_by_id
                      AND u.date_joined > clock_timestamp() - interval '24 hours') THEN
            RAISE EXCEPTION 'an account of today approves nothing' USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT FROM {users} a JOIN {users} b ON lower(btrim(a.email)) = lower(btrim(b.email))
                    WHERE a.id = NEW.asked_by_id AND b.id = NEW.decided_by_id AND btrim(a.email) <> '') THEN
            RAISE EXCEPTION 'another person approves' USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
    CREATE TRIGGER proposal_guard BEFORE INSERT OR UPDATE ON workflows_proposal
           FOR EACH ROW EXECUTE FUNCTION workflows_guard_proposal()"""


def guard(apps: Any, schema_editor: Any) -> None:
    """The users are those of AUTH_USER_MODEL, whatever their table is called."""
    users = apps.get_model(settings.AUTH_USER_MODEL)._meta.db_table
    schema_editor.execute(GUARD.format(users=schema_editor.quote_name(users)), params=None)


# As in 0008: of a proposal, what was done by whom stays, and what was said goes.
KEPT = "'api_key', 'proposal', 'proposed_by', 'proposes', 'reference'"


def emptied(apps: Any, schema_editor: Any) -> None:
    before = import_module("workflows.migrations.0008_emptied_history").EMPTIED
    function = before.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
    schema_editor.execute(function.replace("'reference'", KEPT), params=None)


def emptied_as_before(apps: Any, schema_editor: Any) -> None:
    before = import_module("workflows.migrations.0008_emptied_history").EMPTIED
    schema_editor.execute(before.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"), params=None)


def key_to(to: str, *, null: bool = False) -> Any:
    return models.ForeignKey(to=to, on_delete=models.PROTECT, null=null, related_name="+", db_index=False)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0031_notices_without_a_workflow"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField("ApiKey", "person", key_to(settings.AUTH_USER_MODEL, null=True)),
        migrations.AddConstraint(
            "ApiKey",
            models.CheckConstraint(
                name="api_key_of_a_person",
                condition=Q(person__isnull=False, verbs=[], may__contained_by=["look", "propose"])
                | Q(person__isnull=True) & ~Q(may__overlap=["look", "propose"]),
            ),
        ),
        migrations.AddField("Search", "api_key", models.CharField(max_length=100, db_default="")),
        migrations.CreateModel(
            "Proposal",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("verb", models.CharField(choices=Proposal.Verb.choices, max_length=7)),
                ("row", models.BigIntegerField()),
                ("seen", models.JSONField()),
                ("reason", models.TextField()),
                ("asked_at", models.DateTimeField(db_default=ClockTimestamp())),
                ("lapses_at", models.DateTimeField()),
                ("idempotency_key", models.UUIDField()),
                ("state", models.CharField(choices=Proposal.State.choices, db_default="asked", max_length=9)),
                ("decided_at", models.DateTimeField(null=True)),
                ("api_key", key_to("workflows.apikey")),
                ("asked_by", key_to(settings.AUTH_USER_MODEL)),
                ("decided_by", key_to(settings.AUTH_USER_MODEL, null=True)),
                (
                    "workflow",
                    models.ForeignKey(
                        to="workflows.workflow",
                        on_delete=models.DO_NOTHING,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        related_name="+",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "indexes": [
                    models.Index(condition=Q(state="asked"), fields=["asked_at", "id"], name="proposal_open"),
                    models.Index(fields=["workflow"], name="proposal_of_workflow"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=["asked_by", "idempotency_key"], name="proposal_idempotency_key"),
                    models.UniqueConstraint(
                        condition=Q(state="asked"), fields=["verb", "row"], name="proposal_one_open"
                    ),
                    models.CheckConstraint(
                        name="proposal_four_eyes",
                        condition=~Q(state="approved") | Q(decided_by__isnull=False) & ~Q(decided_by=F("asked_by")),
                    ),
                ],
            },
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
        migrations.RunPython(emptied, emptied_as_before),
        migrations.RunSQL(migrations.RunSQL.noop, "DROP FUNCTION workflows_guard_proposal CASCADE"),
    ]
