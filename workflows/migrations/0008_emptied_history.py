"""What is emptied of the history is what somebody has said: what was done, when and with which outcome stays."""

from django.db import migrations

# Names that the engine and the operations give. What is not among them may hold anything, and goes.
EMPTIED = """
    CREATE FUNCTION workflows_emptied_detail(detail jsonb) RETURNS jsonb IMMUTABLE LANGUAGE sql AS $$
        SELECT coalesce(jsonb_object_agg(key, CASE
               WHEN value IN ('""', 'null', '{}', '[]') OR key IN (
                    'answered_by', 'asked_by', 'asks', 'bulk', 'counts_as', 'error_class', 'error_code', 'failures', 'first',
                    'how', 'invisible_until', 'max_attempts', 'mend', 'reference', 'said', 'service', 'steps', 'task', 'to',
                    'type', 'undone', 'until')
               THEN value ELSE '"(deleted)"' END), '{}')
          FROM jsonb_each(detail)
    $$"""
STAYS = """
    DROP TRIGGER stays_as_it_is ON workflows_event;
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE ON workflows_event FOR EACH ROW
           WHEN ((OLD.kind <> 'vanished' OR OLD.actor <> ''
                  OR (OLD.id, OLD.workflow_id, OLD.at, OLD.attempt, OLD.actor, OLD.finished_xid)
                     IS DISTINCT FROM (NEW.id, NEW.workflow_id, NEW.at, NEW.attempt, NEW.actor, NEW.finished_xid))
                 AND NOT ((OLD.id, OLD.workflow_id, OLD.at, OLD.kind, OLD.attempt, OLD.step, OLD.actor, OLD.finished_xid)
                          IS NOT DISTINCT FROM
                          (NEW.id, NEW.workflow_id, NEW.at, NEW.kind, NEW.attempt, NEW.step, NEW.actor, NEW.finished_xid)
                          AND NEW.detail = {emptied} AND workflows_may_be_emptied(OLD.workflow_id)))
           EXECUTE FUNCTION workflows_stays()"""


class Migration(migrations.Migration):
    dependencies = [("workflows", "0007_signal_closed_of_linking_id")]

    operations = [
        migrations.RunSQL(
            [EMPTIED, STAYS.format(emptied="workflows_emptied_detail(OLD.detail)")],
            [STAYS.format(emptied="'{}'"), "DROP FUNCTION workflows_emptied_detail"],
        )
    ]
