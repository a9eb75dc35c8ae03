"""What the database itself refuses: to change what is on record, to delete too early, to correct alone.

An application's role could set whatever a session is asked: so no setting opens these, and the database looks at ages itself.
"""

from django.conf import settings
from django.db import migrations

# Of an event the engine corrects one thing: how an attempt ended that it knew nothing of (`state.attempt_log`), and nothing
# of what a person did. What is on record of a workflow that is emptied, and finished a week ago, may be emptied, too; at
# once for an erasure that two people decided.
STAYS = """
    CREATE FUNCTION workflows_stays() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'What is on record stays: % of % is refused', TG_OP, TG_TABLE_NAME
              USING ERRCODE = 'restrict_violation';
    END $$;
    CREATE FUNCTION workflows_may_be_emptied(which bigint) RETURNS boolean STABLE LANGUAGE sql AS $$
        SELECT EXISTS (SELECT FROM workflows_workflow w
                        WHERE w.id = which AND w.emptied_at IS NOT NULL
                          AND (w.completed_at < now() - interval '7 days'
                               OR EXISTS (SELECT FROM workflows_erasure e
                                           WHERE e.state = 'done' AND e.workflows @> ARRAY[which])))
    $$;
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE ON workflows_event FOR EACH ROW
           WHEN ((OLD.kind <> 'vanished' OR OLD.actor <> ''
                  OR (OLD.id, OLD.workflow_id, OLD.at, OLD.attempt, OLD.actor, OLD.finished_xid)
                     IS DISTINCT FROM (NEW.id, NEW.workflow_id, NEW.at, NEW.attempt, NEW.actor, NEW.finished_xid))
                 AND NOT ((OLD.id, OLD.workflow_id, OLD.at, OLD.kind, OLD.attempt, OLD.step, OLD.actor, OLD.finished_xid)
                          IS NOT DISTINCT FROM
                          (NEW.id, NEW.workflow_id, NEW.at, NEW.kind, NEW.attempt, NEW.step, NEW.actor, NEW.finished_xid)
                          AND NEW.detail = '{}' AND workflows_may_be_emptied(OLD.workflow_id)))
           EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE ON workflows_access FOR EACH ROW
           WHEN ((OLD.id, OLD.at, OLD.actor, OLD.kind, OLD.workflow_id, OLD.detail - 'purpose')
                 IS DISTINCT FROM (NEW.id, NEW.at, NEW.actor, NEW.kind, NEW.workflow_id, NEW.detail)
                 OR NOT workflows_may_be_emptied(OLD.workflow_id))
           EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE TRUNCATE ON workflows_event EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE TRUNCATE ON workflows_access EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE UPDATE OR TRUNCATE ON workflows_search EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE UPDATE OR TRUNCATE ON workflows_circuitevent EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE UPDATE OR DELETE OR TRUNCATE ON workflows_spentkey EXECUTE FUNCTION workflows_stays()"""

# Once for each statement, for all that it has deleted. What people did, and the audit, is kept for a year at the least.
DELETIONS = """
    CREATE FUNCTION workflows_guard_deletion() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM gone
                     LEFT JOIN workflows_spentkey spent
                            ON spent.workflow_id = gone.id AND spent.at < now() - interval '1 hour'
                    WHERE spent.workflow_id IS NULL OR gone.emptied_at IS NULL
                       OR gone.completed_at > now() - interval '30 days') THEN
            RAISE EXCEPTION 'A workflow that is not emptied, is younger than 30 days, or has a key that could be used again, stays'
                  USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END $$;
    CREATE FUNCTION workflows_guard_events() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM gone LEFT JOIN workflows_workflow w ON w.id = gone.workflow_id
                    WHERE CASE WHEN gone.actor = ''
                               THEN w.emptied_at IS NULL OR w.completed_at > now() - interval '30 days'
                               ELSE w.id IS NOT NULL OR gone.at > now() - interval '365 days' END) THEN
            RAISE EXCEPTION 'What is on record stays: DELETE of workflows_event is refused'
                  USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END $$;
    CREATE FUNCTION workflows_guard_audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM gone WHERE at > now() - interval '365 days') THEN
            RAISE EXCEPTION 'What is on record stays: DELETE of % is refused', TG_TABLE_NAME
                  USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END $$"""
GUARDED = {
    "workflows_workflow": "workflows_guard_deletion",
    "workflows_event": "workflows_guard_events",
    "workflows_access": "workflows_guard_audit",
    "workflows_search": "workflows_guard_audit",
    "workflows_circuitevent": "workflows_guard_audit",
}
GUARD = """
    CREATE TRIGGER guard_deletion AFTER DELETE ON {} REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION {}()"""

# Whether a user may ask or approve: active staff with an e-mail address, who was made a day ago or earlier, and to whom
# somebody gave the permission, directly or by a group. To be a superuser is not enough.
MAY_CORRECT = """
CREATE FUNCTION workflows_may_correct(who {key}) RETURNS boolean STABLE LANGUAGE sql AS $$
    SELECT EXISTS (
        SELECT FROM {users} u, auth_permission p JOIN django_content_type t ON t.id = p.content_type_id
         WHERE u.id = who AND u.is_active AND u.is_staff AND btrim(u.email) <> ''
           AND u.date_joined <= clock_timestamp() - interval '24 hours'
           AND t.app_label = 'workflows' AND p.codename = 'correct_workflow'
           AND (EXISTS (SELECT FROM {rights} own
                         WHERE own.{of_rights} = u.id AND own.permission_id = p.id)
             OR EXISTS (SELECT FROM {groups} g JOIN auth_group_permissions gp ON gp.group_id = g.group_id
                         WHERE g.{of_groups} = u.id AND gp.permission_id = p.id)))
$$"""

# Its messages hold no value of the row: the server may log them.
CORRECTIONS = """
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
        IF EXISTS (SELECT FROM {users} a JOIN {users} b ON lower(btrim(a.email)) = lower(btrim(b.email))
                    WHERE a.id = NEW.asked_by_id AND b.id = NEW.decided_by_id) THEN
            RAISE EXCEPTION 'another person approves a correction' USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
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


def guard_corrections(apps, schema_editor):
    """The users are those of AUTH_USER_MODEL, whatever its tables and columns are called."""
    quoted, user = schema_editor.quote_name, apps.get_model(settings.AUTH_USER_MODEL)
    rights, groups = user._meta.get_field("user_permissions"), user._meta.get_field("groups")
    names = {
        "key": user._meta.pk.rel_db_type(schema_editor.connection),
        "users": quoted(user._meta.db_table),
        "rights": quoted(rights.m2m_db_table()),
        "of_rights": quoted(rights.m2m_column_name()),
        "groups": quoted(groups.m2m_db_table()),
        "of_groups": quoted(groups.m2m_column_name()),
    }
    for made in (MAY_CORRECT, CORRECTIONS):
        schema_editor.execute(made.format(**names), params=None)


FUNCTIONS = [
    *["workflows_stays", "workflows_may_be_emptied", "workflows_may_correct", "workflows_guard_correction"],
    *["workflows_guard_deletion", "workflows_guard_events", "workflows_guard_audit"],
]


# A database that has all of these, and 0002_groups, has what is made here.
MADE_BY = """
    0003_business_keys 0004_business_key_indexes 0005_causes 0006_failed_reversals 0007_request_ids
    0008_request_id_index 0009_rollup 0010_rollup_indexes 0011_bulk_operations 0012_failed_release
    0013_failures 0014_pace 0015_lanes 0016_tenants 0017_settled_messages
    0018_access 0019_audit_indexes 0020_rights_of_keys 0021_data_keys 0022_corrections
    0023_assigned 0024_lead_asked_index 0025_retention 0026_retention_indexes 0027_retention_checked
    0028_holds 0029_erasures 0030_outbox 0031_spent_keys 0032_spent_keys_indexes
    0033_ages 0034_chores_of_types 0035_corrections_lapse 0036_sealed_webhook_secrets"""


class Migration(migrations.Migration):
    replaces = [("workflows", name) for name in MADE_BY.split()]
    dependencies = [
        ("workflows", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunSQL(
            [STAYS, DELETIONS, *(GUARD.format(*guarded) for guarded in GUARDED.items())],
            [f"DROP FUNCTION {name} CASCADE" for name in FUNCTIONS],
        ),
        migrations.RunPython(guard_corrections, migrations.RunPython.noop),
    ]
