"""What people look at is on record before they see it, and what is on record stays: the database sees to both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, transaction
from django.db.models import F, Model
from django.utils import timezone

from tests.engine import another_connection
from tests.postgres import without_triggers
from tests.workflows import rows
from workflows import operations
from workflows.definition import WorkflowDefinition
from workflows.errors import NotAllowed
from workflows.models import Access, CircuitEvent, Event, Search, Workflow
from workflows.models.xids import CurrentTransactionId

pytestmark = pytest.mark.django_db(transaction=True)

PHONE = "+15550102323"


@pytest.fixture
def lead() -> User:
    return User.objects.create_superuser("lead")


def submission() -> Workflow:
    secrets = {"password": "hunter2"}
    return rows.workflow(workflow_type="onboarding", payload={"patient": {"phone": PHONE, "email": [], **secrets}})


def reveal(row: Workflow, user: User, *fields: str, reason: str = "Call her back.") -> dict[str, object]:
    return operations.reveal(row.pk, user=user, fields=fields or ("patient.phone",), reason=reason)


# --- Revealing ----------------------------------------------------------------------------------


def test_what_was_revealed_is_on_record_with_its_purpose_and_without_its_value(lead: User) -> None:
    row = submission()
    assert reveal(row, lead, "patient.phone", "patient.last_name") == {
        "patient.phone": PHONE,
        "patient.last_name": None,
    }
    made = Access.objects.get()
    assert (made.actor, made.kind, made.workflow_id) == ("lead", "revealed", row.pk)
    assert made.detail == {"fields": ["patient.phone", "patient.last_name"], "purpose": "Call her back."}


def test_it_is_committed_before_the_value_is_read(lead: User) -> None:
    row, seen = submission(), []

    def look(execute: object, sql: str, *rest: object) -> object:
        if '"payload"' in sql:
            with another_connection() as other:
                seen.append(other.execute("SELECT kind FROM workflows_access").fetchall())
        return execute(sql, *rest)  # type: ignore[operator]

    with connection.execute_wrapper(look):
        reveal(row, lead)
    assert seen == [[("revealed",)]]


def test_nothing_is_revealed_when_the_database_refuses_the_record(lead: User) -> None:
    row = submission()
    with a_check("actor <> 'lead'"), pytest.raises(IntegrityError, match="refused"):
        reveal(row, lead)


def test_what_the_definition_does_not_call_revealable_is_refused(lead: User) -> None:
    row = submission()
    for field in ("patient.password", "payment.card_token", "patient", "questionnaire.answers", ""):
        with pytest.raises(NotAllowed, match="not revealed to anybody"):
            reveal(row, lead, "patient.phone", field)
    assert not Access.objects.exists()


def test_it_takes_the_right_a_purpose_and_a_row(lead: User) -> None:
    row = submission()
    with pytest.raises(PermissionDenied):
        reveal(row, User.objects.create_user("support"))
    with pytest.raises(NotAllowed, match="Say why"):
        reveal(row, lead, reason=" \u200b ")
    with pytest.raises(NotAllowed):
        operations.reveal(row.pk + 1, user=lead, fields=["patient.phone"], reason="To call.")
    assert not Access.objects.exists()


@pytest.mark.parametrize("field", ["patient.password", "cardToken", "session_token", "a.pin", "checkout.cvc"])
def test_no_definition_calls_a_secret_revealable(field: str) -> None:
    with pytest.raises(ValueError, match="A secret is revealed to nobody"):
        WorkflowDefinition(name="x", steps=[], context_class=rows.Context, revealable=["patient.phone", field])


# --- Views --------------------------------------------------------------------------------------


def test_each_view_is_a_line_but_those_by_which_a_page_stays_up_to_date_are_one_in_a_quarter_of_an_hour() -> None:
    for in_background in (False, False, True, True):
        operations.record_view(1, actor="ada", in_background=in_background)
    assert Access.objects.count() == 2
    with without_triggers():
        Access.objects.update(at=F("at") - timedelta(minutes=16))
    operations.record_view(1, actor="ada", in_background=True)
    operations.record_view(1, actor="bob", in_background=True)
    operations.record_view(2, actor="ada", in_background=True)
    assert Access.objects.count() == 5


def test_while_the_database_is_read_only_the_log_has_the_view(caplog: pytest.LogCaptureFixture) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            operations.record_view(7, actor="ada")
        finally:
            cursor.execute("RESET default_transaction_read_only")
    assert "workflow 7: ada has opened its page, while the database is read-only" in caplog.text
    with a_check("actor <> 'ada'"), pytest.raises(IntegrityError):
        operations.record_view(7, actor="ada")


# --- It stays -----------------------------------------------------------------------------------


def on_record() -> list[Model]:
    row = rows.failed()
    return [
        Access.objects.create(actor="ada", kind="viewed", workflow=row),
        Search.objects.create(actor="ada", tried=["email"], hits=1),
        CircuitEvent.objects.create(service="payments", kind="held", actor="ada"),
        rows.event(row, "retried", actor="ada"),
        rows.event(row, "failed", attempt=1),
        LogEntry.objects.create(user=User.objects.create_user("ada"), action_flag=1, object_repr="x"),
    ]


@pytest.mark.parametrize("sql", ["UPDATE {} SET {}", "DELETE FROM {}", "TRUNCATE {}"])
def test_the_database_refuses_to_change_what_is_on_record(sql: str) -> None:
    made = on_record()
    for table in sorted({each._meta.db_table for each in made}):
        change = "object_repr = 'y'" if table == "django_admin_log" else "actor = 'eve'"
        with pytest.raises(IntegrityError, match="What is on record stays"), connection.cursor() as cursor:
            cursor.execute(sql.format(table, change))
    assert [type(each).objects.get(pk=each.pk) for each in made] == made  # type: ignore[attr-defined]


def test_an_entry_of_djangos_log_may_lose_its_type_of_row_when_the_model_is_gone_and_nothing_else() -> None:
    gone = ContentType.objects.create(app_label="old", model="parcel")
    entry = LogEntry.objects.create(
        user=User.objects.create_user("ada"), content_type=gone, action_flag=1, object_repr="parcel 1"
    )
    for change in ({"content_type": ContentType.objects.exclude(pk=gone.pk).first()}, {"action_time": timezone.now()}):
        with pytest.raises(IntegrityError), transaction.atomic():
            LogEntry.objects.update(**change)
    gone.delete()
    entry.refresh_from_db()
    assert (entry.content_type, entry.object_repr) == (None, "parcel 1")


def test_of_an_event_only_how_an_attempt_vanished_is_corrected() -> None:
    row = rows.failed()
    vanished, by_ada = rows.event(row, "vanished", attempt=1), rows.event(row, "vanished", actor="ada")
    others = ({"workflow_id": 9}, {"finished_xid": CurrentTransactionId()}, {"at": row.created_at})
    for change in ({"actor": "eve"}, {"attempt": 2}, *others):
        with pytest.raises(IntegrityError), transaction.atomic():
            Event.objects.filter(pk=vanished.pk).update(**change)
    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.filter(pk=by_ada.pk).update(kind="killed")
    Event.objects.filter(pk=vanished.pk).update(kind="killed", step="charge", detail={"how": "signal 9"})
    with pytest.raises(IntegrityError), transaction.atomic():
        Event.objects.filter(pk=vanished.pk).update(kind="completed")


def test_a_role_that_owns_none_of_the_tables_cannot_switch_the_triggers_off() -> None:
    on_record()
    with another_connection() as other:
        other.execute("CREATE ROLE clerk; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk")
        try:
            other.execute("SET ROLE clerk")
            for sql in (
                "ALTER TABLE workflows_access DISABLE TRIGGER ALL",
                "DROP TRIGGER stays ON workflows_access",
                "SET session_replication_role = replica",
                "CREATE TRIGGER a BEFORE INSERT ON workflows_access EXECUTE FUNCTION workflows_stays()",
                "CREATE OR REPLACE FUNCTION workflows_stays() RETURNS trigger LANGUAGE sql AS ''",
            ):
                with pytest.raises(psycopg.Error):
                    other.execute(sql)
        finally:
            other.execute("RESET ROLE; DROP OWNED BY clerk; DROP ROLE clerk")


@contextmanager
def a_check(condition: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE workflows_access ADD CONSTRAINT refused CHECK ({condition})")
        try:
            yield
        finally:
            cursor.execute("ALTER TABLE workflows_access DROP CONSTRAINT refused")
