"""What is on record may be deleted by its age. The database looks at it itself: a year at the least."""

from django.db import migrations

GUARD = """
    CREATE FUNCTION workflows_guard_audit() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM gone WHERE at > now() - interval '365 days') THEN
            RAISE EXCEPTION 'What is on record stays: DELETE of % is refused', TG_TABLE_NAME
                  USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END $$;
    CREATE OR REPLACE FUNCTION workflows_guard_events() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM gone LEFT JOIN workflows_workflow w ON w.id = gone.workflow_id
                    WHERE CASE WHEN gone.actor = ''
                               THEN w.emptied_at IS NULL OR w.completed_at > now() - interval '30 days'
                               ELSE w.id IS NOT NULL OR gone.at > now() - interval '365 days' END) THEN
            RAISE EXCEPTION 'What is on record stays: DELETE of workflows_event is refused'
                  USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END $$"""
TABLE = """
    DROP TRIGGER stays ON {table};
    CREATE TRIGGER stays BEFORE {refused} ON {table} EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER guard_deletion AFTER DELETE ON {table} REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION workflows_guard_audit()"""
TABLES = {
    "workflows_access": "TRUNCATE",  # its UPDATE has a trigger of its own
    "workflows_search": "UPDATE OR TRUNCATE",
    "workflows_circuitevent": "UPDATE OR TRUNCATE",
}


class Migration(migrations.Migration):
    dependencies = [("workflows", "0032_spent_keys_indexes")]

    operations = [
        migrations.RunSQL(GUARD, "DROP FUNCTION workflows_guard_audit CASCADE"),
        *(
            migrations.RunSQL(TABLE.format(table=table, refused=refused), migrations.RunSQL.noop)
            for table, refused in TABLES.items()
        ),
    ]
