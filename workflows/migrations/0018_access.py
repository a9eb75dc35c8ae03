"""What people look at; who may reveal, and see the audit; and what is on record stays: the database refuses the rest."""

from importlib import import_module
from typing import Any

import django.db.models.deletion
from django.db import migrations, models

import workflows.models.clock

GROUPS = {"support lead": ["reveal_workflow"], "auditor": ["view_audit"]}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


# An INSERT runs none of these. Of an event the engine corrects one thing: how an attempt ended that it knew nothing of
# (`state.attempt_log`), and nothing of what a person did.
ADD_TRIGGERS = """
    CREATE FUNCTION workflows_stays() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'What is on record stays: % of % is refused', TG_OP, TG_TABLE_NAME
              USING ERRCODE = 'restrict_violation';
    END $$;
    CREATE TRIGGER stays BEFORE UPDATE OR DELETE OR TRUNCATE ON workflows_access EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE UPDATE OR DELETE OR TRUNCATE ON workflows_search EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE UPDATE OR DELETE OR TRUNCATE ON workflows_circuitevent
           EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays BEFORE DELETE OR TRUNCATE ON workflows_event EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE ON workflows_event FOR EACH ROW
           WHEN (OLD.kind <> 'vanished' OR OLD.actor <> ''
                 OR (OLD.id, OLD.workflow_id, OLD.at, OLD.attempt, OLD.actor, OLD.finished_xid)
                    IS DISTINCT FROM (NEW.id, NEW.workflow_id, NEW.at, NEW.attempt, NEW.actor, NEW.finished_xid))
           EXECUTE FUNCTION workflows_stays()"""
DROP_TRIGGERS = "DROP FUNCTION workflows_stays CASCADE"


class Migration(migrations.Migration):
    dependencies = [("workflows", "0017_settled_messages")]

    operations = [
        migrations.CreateModel(
            name="Access",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(db_default=workflows.models.clock.ClockTimestamp())),
                ("actor", models.CharField(max_length=150)),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("viewed", "Opened the page"),
                            ("revealed", "Revealed"),
                            ("exported", "Exported the audit"),
                        ],
                        max_length=10,
                    ),
                ),
                ("detail", models.JSONField(db_default=models.Value({}, models.JSONField()))),
                (
                    "workflow",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="workflows.workflow",
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "permissions": [
                    ("view_audit", "Can see who did what, and who looked at whom"),
                    ("reveal_workflow", "Can see a patient's masked values, for a purpose that is recorded"),
                ],
                "indexes": [models.Index(fields=["workflow", "-at", "-id"], name="access_of_workflow")],
            },
        ),
        migrations.RunSQL(ADD_TRIGGERS, DROP_TRIGGERS),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
