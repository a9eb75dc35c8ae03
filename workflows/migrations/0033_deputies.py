"""Deputies: who stands in for whom, and that four eyes take no deputy for another person."""

from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

from workflows.models.clock import ClockTimestamp

# `since` is when the first of the two acted. Somebody who was a deputy at any time after that counts as both.
COUNT_AS_ONE = """
    CREATE FUNCTION workflows_count_as_one(first {key}, second {key}, since timestamptz) RETURNS boolean
           LANGUAGE sql STABLE AS $$
        SELECT first = second OR EXISTS (
            SELECT FROM (SELECT first UNION ALL
                         SELECT absent_id FROM workflows_deputy
                          WHERE deputy_id = first AND begins_at < ends_at
                            AND begins_at <= clock_timestamp() AND ends_at > since) a (who)
                   JOIN (SELECT second UNION ALL
                         SELECT absent_id FROM workflows_deputy
                          WHERE deputy_id = second AND begins_at < ends_at
                            AND begins_at <= clock_timestamp() AND ends_at > since) b (who) USING (who))
    $$"""
# The message holds no value of the row: the server may log it.
REFUSE = """
    CREATE FUNCTION workflows_refuse_deputy() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'a deputy and the one they stand in for are one person: another one decides'
              USING ERRCODE = 'check_violation', CONSTRAINT = 'four_eyes_of_deputies';
    END $$"""
# Table, the columns of the first and the second person, when the first acted, and when it takes two.
FOUR_EYES = [
    ("workflows_manualtask", "requested_by_id", "decided_by_id", "created_at", "NEW.four_eyes"),
    ("workflows_confirmation", "asked_by_id", "decided_by_id", "asked_at", "NEW.state = 'confirmed' AND NOT NEW.alone"),
    ("workflows_confirmation", "decided_by_id", "reviewed_by_id", "asked_at", "NEW.alone"),
    ("workflows_correction", "asked_by_id", "decided_by_id", "asked_at", "NEW.state = 'approved'"),
    ("workflows_erasure", "asked_by_id", "decided_by_id", "asked_at", "NEW.state = 'done'"),
    ("workflows_bulkoperation", "asked_by_id", "approved_by_id", "asked_at", "NEW.four_eyes"),
    ("workflows_proposal", "asked_by_id", "decided_by_id", "asked_at", "NEW.state = 'approved'"),
]
GUARD = """
    CREATE TRIGGER four_eyes_of_{second} BEFORE UPDATE OF {second} ON {table} FOR EACH ROW
           WHEN (OLD.{second} IS DISTINCT FROM NEW.{second} AND {takes_two}
                 AND workflows_count_as_one(NEW.{first}, NEW.{second}, NEW.{since}))
           EXECUTE FUNCTION workflows_refuse_deputy()"""
# What four eyes rest on is not taken back: it is ended from now on, and deleted when nothing asks for it any more.
STAYS = """
    CREATE FUNCTION workflows_guard_deputy() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' AND OLD.ends_at > clock_timestamp() - interval '30 days'
           OR TG_OP = 'UPDATE' AND (
              (NEW.id, NEW.absent_id, NEW.deputy_id, NEW.begins_at, NEW.set_by, NEW.set_at) IS DISTINCT FROM
              (OLD.id, OLD.absent_id, OLD.deputy_id, OLD.begins_at, OLD.set_by, OLD.set_at)
              OR NEW.ends_at > OLD.ends_at
              OR NEW.ends_at < least(OLD.ends_at, greatest(OLD.begins_at, statement_timestamp()))) THEN
            RAISE EXCEPTION 'a deputy stays as it was set: it is only ended from now on'
                  USING ERRCODE = 'check_violation';
        END IF;
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END $$;
    CREATE TRIGGER stays_as_it_is BEFORE UPDATE OR DELETE ON workflows_deputy
           FOR EACH ROW EXECUTE FUNCTION workflows_guard_deputy()"""
# As in 0032, with `deputy_for`: the name of the person in whose place somebody acted.
EMPTIED = """
    CREATE OR REPLACE FUNCTION workflows_emptied_detail(detail jsonb) RETURNS jsonb IMMUTABLE LANGUAGE sql AS $$
        SELECT coalesce(jsonb_object_agg(key, CASE
               WHEN value IN ('""', 'null', '{{}}', '[]') OR key IN (
                    'answered_by', 'api_key', 'asked_by', 'asks', 'bulk', 'counts_as', {also}'error_class',
                    'error_code', 'failures', 'first', 'how', 'invisible_until', 'max_attempts', 'mend', 'proposal',
                    'proposed_by', 'proposes', 'reference', 'said', 'service', 'steps', 'task', 'to', 'type', 'undone',
                    'until')
               THEN value ELSE '"(deleted)"' END), '{{}}')
          FROM jsonb_each(detail)
    $$"""


def guard(apps: Any, schema_editor: Any) -> None:
    """The users are those of AUTH_USER_MODEL, whatever their key is."""
    key = apps.get_model(settings.AUTH_USER_MODEL)._meta.pk.rel_db_type(schema_editor.connection)
    triggers = [
        GUARD.format(table=table, first=first, second=second, since=since, takes_two=takes_two)
        for table, first, second, since, takes_two in FOUR_EYES
    ]
    for sql in (COUNT_AS_ONE.format(key=key), REFUSE, *triggers, STAYS):
        schema_editor.execute(sql, params=None)


def user() -> Any:
    return models.ForeignKey(to=settings.AUTH_USER_MODEL, on_delete=models.PROTECT, db_index=False, related_name="+")


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0032_operator_api"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            "Deputy",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True, verbose_name="ID")),
                ("absent", user()),
                ("deputy", user()),
                ("begins_at", models.DateTimeField()),
                ("ends_at", models.DateTimeField()),
                ("set_by", models.CharField(max_length=150)),
                ("set_at", models.DateTimeField(db_default=ClockTimestamp())),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(name="deputy_is_another", condition=~Q(absent=F("deputy"))),
                    models.CheckConstraint(
                        name="deputy_ends_after_it_begins", condition=Q(ends_at__gte=F("begins_at"))
                    ),
                ],
                "indexes": [
                    models.Index(name="deputy_of_absent", fields=["absent", "ends_at"]),
                    models.Index(name="deputy_of_deputy", fields=["deputy", "ends_at"]),
                ],
            },
        ),
        migrations.RunPython(guard, migrations.RunPython.noop),
        migrations.RunSQL(
            migrations.RunSQL.noop,
            [
                "DROP FUNCTION workflows_refuse_deputy CASCADE",
                "DROP FUNCTION workflows_guard_deputy CASCADE",
                "DROP FUNCTION workflows_count_as_one",
            ],
        ),
        migrations.RunSQL(EMPTIED.format(also="'deputy_for', "), EMPTIED.format(also="")),
    ]
