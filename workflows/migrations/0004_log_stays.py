"""Django's log of what people did to users, keys and bulk operations stays, as the rest of the audit does."""

from django.db import migrations

# Of an entry one thing may change: it loses its type of row, when Django deletes that of a model that is gone.
STAYS = """
    CREATE FUNCTION workflows_guard_log() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM gone WHERE action_time > now() - interval '365 days') THEN
            RAISE EXCEPTION 'What is on record stays: DELETE of django_admin_log is refused'
                  USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END $$;
    CREATE TRIGGER guard_deletion AFTER DELETE ON django_admin_log REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION workflows_guard_log();
    CREATE TRIGGER stays BEFORE TRUNCATE ON django_admin_log EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE ON django_admin_log FOR EACH ROW
           WHEN (NEW.content_type_id IS NOT NULL
                 OR (OLD.id, OLD.action_time, OLD.user_id, OLD.object_id, OLD.object_repr, OLD.action_flag, OLD.change_message)
                    IS DISTINCT FROM
                    (NEW.id, NEW.action_time, NEW.user_id, NEW.object_id, NEW.object_repr, NEW.action_flag, NEW.change_message))
           EXECUTE FUNCTION workflows_stays()"""
GOES = """
    DROP FUNCTION workflows_guard_log CASCADE;
    DROP TRIGGER stays ON django_admin_log;
    DROP TRIGGER stays_as_it_is ON django_admin_log"""


class Migration(migrations.Migration):
    dependencies = [("workflows", "0003_groups"), ("admin", "0003_logentry_add_action_flag_choices")]

    operations = [migrations.RunSQL(STAYS, GOES)]
