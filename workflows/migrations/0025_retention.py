"""When a workflow was emptied; and what is on record of it may then be emptied, too, and is changed in no other way."""

from typing import Any

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models
from django.db.models import Q

# The database looks at the age itself: no release, and nobody at a shell, empties what is younger than a week.
MAY_BE_EMPTIED = """
    CREATE FUNCTION workflows_may_be_emptied(which bigint) RETURNS boolean STABLE LANGUAGE sql AS $$
        SELECT EXISTS (SELECT FROM workflows_workflow
                        WHERE id = which AND emptied_at IS NOT NULL AND completed_at < now() - interval '7 days')
    $$"""
TRIGGERS = """
    DROP TRIGGER stays_as_it_is ON workflows_event;
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE ON workflows_event FOR EACH ROW
           WHEN ((OLD.kind <> 'vanished' OR OLD.actor <> ''
                  OR (OLD.id, OLD.workflow_id, OLD.at, OLD.attempt, OLD.actor, OLD.finished_xid)
                     IS DISTINCT FROM (NEW.id, NEW.workflow_id, NEW.at, NEW.attempt, NEW.actor, NEW.finished_xid))
                 AND NOT ((OLD.id, OLD.workflow_id, OLD.at, OLD.kind, OLD.attempt, OLD.step, OLD.actor, OLD.finished_xid)
                          IS NOT DISTINCT FROM
                          (NEW.id, NEW.workflow_id, NEW.at, NEW.kind, NEW.attempt, NEW.step, NEW.actor, NEW.finished_xid)
                          AND NEW.detail = '{}' AND workflows_may_be_emptied(OLD.workflow_id)))
           EXECUTE FUNCTION workflows_stays();
    DROP TRIGGER stays ON workflows_access;
    CREATE TRIGGER stays BEFORE DELETE OR TRUNCATE ON workflows_access EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE ON workflows_access FOR EACH ROW
           WHEN ((OLD.id, OLD.at, OLD.actor, OLD.kind, OLD.workflow_id, OLD.detail - 'purpose')
                 IS DISTINCT FROM (NEW.id, NEW.at, NEW.actor, NEW.kind, NEW.workflow_id, NEW.detail)
                 OR NOT workflows_may_be_emptied(OLD.workflow_id))
           EXECUTE FUNCTION workflows_stays();
    DROP TRIGGER correction_guard ON workflows_correction;
    CREATE TRIGGER correction_guard BEFORE INSERT ON workflows_correction
           FOR EACH ROW EXECUTE FUNCTION workflows_guard_correction();
    CREATE TRIGGER correction_guard_changes BEFORE UPDATE ON workflows_correction FOR EACH ROW
           WHEN (OLD.state = 'asked'
                 OR (OLD.id, OLD.workflow_id, OLD.of_failure, OLD.proposed, OLD.state, OLD.asked_by_id, OLD.asked_at,
                     OLD.decided_by_id, OLD.decided_at)
                    IS DISTINCT FROM
                    (NEW.id, NEW.workflow_id, NEW.of_failure, NEW.proposed, NEW.state, NEW.asked_by_id, NEW.asked_at,
                     NEW.decided_by_id, NEW.decided_at)
                 OR NEW.told <> '[]' OR NEW.reason <> '' OR NOT workflows_may_be_emptied(OLD.workflow_id))
           EXECUTE FUNCTION workflows_guard_correction()"""


class Migration(migrations.Migration):
    dependencies = [("workflows", "0024_lead_asked_index")]

    operations: list[Any] = [
        migrations.AddField("Workflow", "emptied_at", models.DateTimeField(null=True)),
        AddConstraintNotValid(
            "Workflow",
            models.CheckConstraint(
                name="workflow_emptied_is_at_rest", condition=Q(emptied_at=None) | ~Q(status="PENDING")
            ),
        ),
        migrations.RunSQL(MAY_BE_EMPTIED, "DROP FUNCTION workflows_may_be_emptied CASCADE"),
        migrations.RunSQL(TRIGGERS, migrations.RunSQL.noop),
    ]
