"""Rows are deleted long after their end, once their keys are set aside; the database looks at the age itself."""

from typing import Any

from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now

# Once for each statement, for all that it has deleted. Lines of the audit, and their ages: `retention.ages`.
GUARD = """
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
    CREATE TRIGGER guard_deletion AFTER DELETE ON workflows_workflow REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION workflows_guard_deletion();
    CREATE FUNCTION workflows_guard_events() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF EXISTS (SELECT FROM gone LEFT JOIN workflows_workflow w ON w.id = gone.workflow_id
                    WHERE gone.actor <> '' OR w.emptied_at IS NULL
                       OR w.completed_at > now() - interval '30 days') THEN
            RAISE EXCEPTION 'What is on record stays: DELETE of workflows_event is refused'
                  USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NULL;
    END $$;
    DROP TRIGGER stays ON workflows_event;
    CREATE TRIGGER stays BEFORE TRUNCATE ON workflows_event EXECUTE FUNCTION workflows_stays();
    CREATE TRIGGER guard_deletion AFTER DELETE ON workflows_event REFERENCING OLD TABLE AS gone
           FOR EACH STATEMENT EXECUTE FUNCTION workflows_guard_events();
    CREATE TRIGGER stays BEFORE UPDATE OR DELETE OR TRUNCATE ON workflows_spentkey EXECUTE FUNCTION workflows_stays()"""


class Migration(migrations.Migration):
    dependencies = [("workflows", "0030_outbox")]

    operations: list[Any] = [
        migrations.CreateModel(
            name="SpentKey",
            fields=[
                ("workflow_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("idempotency_key", models.UUIDField(unique=True)),
                ("business_key", models.CharField(max_length=200, null=True)),
                ("workflow_type", models.CharField(max_length=100)),
                ("tenant", models.CharField(max_length=100)),
                ("submitted_by", models.CharField(max_length=100)),
                (
                    "status",
                    models.CharField(
                        choices=[("PENDING", "Pending"), ("COMPLETE", "Complete"), ("FAILED", "Failed")], max_length=8
                    ),
                ),
                ("state", models.CharField(max_length=9)),
                ("at", models.DateTimeField(db_default=Now())),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        name="spentkey_business_key",
                        fields=["business_key", "workflow_type", "tenant"],
                        condition=~Q(business_key=None),
                    )
                ],
            },
        ),
        migrations.RunSQL(
            GUARD, "DROP FUNCTION workflows_guard_deletion CASCADE; DROP FUNCTION workflows_guard_events CASCADE"
        ),
    ]
