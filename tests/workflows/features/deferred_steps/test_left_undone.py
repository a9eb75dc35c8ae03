"""Steps left undone: what failed while its workflow completed, by step and code; and all of a group run again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, parcels
from tests.workflows.admin.tasks import words
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import previews as bulk_previews
from workflows.features.bulk import results as bulk_results
from workflows.features.deferred_steps import left_undone
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.models import BulkItem, BulkOperation, Effect, Event, FollowUp, Workflow
from workflows.models.failure import Cause
from workflows.models.rollup import Rollup

__all__ = ["as_", "parcels"]

pytestmark = pytest.mark.django_db

PAGE = "/admin/left-undone/"
GROUP = {"workflow_type": "parcel", "step": "tell", "code": "no_address"}
CAUSE = Cause(**GROUP)


@pytest.fixture(autouse=True)
def with_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows.PARCEL, "steps", (*rows.PARCEL.steps, rows.TELL))


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create_superuser("boss")


def refused(**fields: Any) -> Workflow:
    return rows.left_undone("tell", **fields)


def called(state: str) -> Callable[[], Workflow]:
    def make() -> Workflow:
        row = refused()
        Effect.objects.create(workflow=row, step="tell", state=state, idempotency_key="k", attempt=1)
        return row

    return make


def done_since() -> Workflow:
    row = refused()
    rows.event(row, "followed_up", step="tell")
    return row


def to_be_tried() -> Workflow:
    row = refused()
    FollowUp.objects.create(workflow=row, step="tell", queue=row.queue, due_at=timezone.now() + timedelta(hours=1))
    return row


def asked_for() -> Workflow:
    row = refused()
    deferred_steps.follow_up(row.pk, user=User.objects.get(username="boss"), step="tell")
    return row


def given_up() -> Workflow:
    return rows.given_up("tell")


def of_a_type_that_is_gone() -> Workflow:
    return refused(workflow_type="gone")


DOUBTFUL = "Whether its call has happened is not known: have it run again by itself."
IS_DUE, NOT_FAILED = "“Tell” is due already: a worker takes it as soon as one is free.", "has not failed, or was done"
# Each state: whether the list has it, and why it is not run again in bulk; empty if it is.
STATES: dict[str, tuple[Callable[[], Workflow], bool, str]] = {
    "refused": (refused, True, ""),
    "refused before it was called": (called("not_done"), True, ""),
    "given up": (given_up, True, ""),
    "its call was under way": (called("intent"), False, DOUBTFUL),
    "its call is unclear": (called("unknown"), False, DOUBTFUL),
    "done since": (done_since, False, NOT_FAILED),
    "to be tried by itself": (to_be_tried, False, "It is to be tried by itself."),
    "asked for already": (asked_for, False, IS_DUE),
    "never failed": (rows.complete, False, NOT_FAILED),
    "failed": (rows.failed, False, "Only a complete workflow"),
    "under way": (rows.retrying, False, "Only a complete workflow"),
    "deleted": (lambda: refused(emptied_at=timezone.now()), False, "What it was sent was deleted"),
    "its type is gone": (of_a_type_that_is_gone, True, "This release does not know its type"),
}


def chosen(user: User, *ids: int) -> BulkOperation:
    some = Workflow.objects.filter(pk__in=ids).order_by().values("pk")
    return bulk.choose("run_again", some, user=user, chosen_by="a test", step="tell")


def carried_out(made: BulkOperation, user: User) -> BulkOperation:
    bulk.start(made.pk, user=user, reason="The service takes it now.", pace=50)
    while True:
        BulkOperation.objects.filter(pk=made.pk).update(next_at=timezone.now() - timedelta(seconds=2))
        if not bulk.do_slice(0).changed:
            made.refresh_from_db()
            return made


def outcome_of(row: Workflow, made: BulkOperation) -> tuple[str, str]:
    return BulkItem.objects.values_list("outcome", "why").get(row=row.pk, operation=made)


@pytest.mark.parametrize("state", STATES)
def test_what_is_listed_previewed_and_run_again(state: str, boss: User) -> None:
    make, is_listed, why = STATES[state]
    row = make()
    assert any(row.pk in each.ids for each in left_undone.groups()) == is_listed
    made = chosen(boss, row.pk)
    assert bulk_previews.preview(made, boss).can == (not why)
    before = FollowUp.objects.filter(workflow=row).values_list("due_at", flat=True).first()
    carried_out(made, boss)
    outcome, told = outcome_of(row, made)
    assert (outcome, why in told) == ("skipped" if why else "done", True), told
    after = FollowUp.objects.filter(workflow=row, step="tell").values_list("due_at", flat=True).first()
    if why:
        assert after == before
    else:
        assert after
        assert Event.objects.filter(workflow=row, kind="follow_up_asked").count() == 1


def test_groups_say_how_many_from_when_to_when_and_how_many_runs(as_: Login) -> None:
    first, *_, last = [refused() for _ in range(7)]
    rows.left_undone("thank")
    labels = {"workflow_type": "parcel", "step": "tell", "outcome": "best_effort_failed"}
    day = {"grain": "day", "metric": "step", "at": timezone.now() - timedelta(days=2), "seconds": 1, "buckets": []}
    Rollup.objects.create(**day, **labels, code="no_address", count=12)
    Rollup.objects.create(**day, **labels, code="older", count=3)
    group, other, older = left_undone.groups()
    assert (group.cause, len(group.ids), group.ids[0], group.runs) == (CAUSE, 7, last.pk, 12)
    at = dict(Event.objects.filter(kind="best_effort_failed").values_list("workflow", "at"))
    assert (group.first, group.last) == (at[first.pk], at[last.pk])
    assert (other.cause.step, len(other.ids), older.cause.code, older.ids, older.runs) == ("thank", 1, "older", [], 3)
    html = as_("support").get(PAGE).content.decode()
    assert "Run 7 again" in html
    assert f"/workflow/{last.pk}/change/" in html
    assert "older" in words(html)
    for page in ("/admin/", "/admin/failures/"):
        assert f'href="{PAGE}"' in as_("support").get(page).content.decode()


def test_a_group_is_frozen_and_a_second_person_is_asked_above_twenty(as_: Login) -> None:
    lead = as_("support lead")
    ids = {refused().pk for _ in range(20)}
    assert start_page(lead, **GROUP).four_eyes is False
    ids.add(refused().pk)
    made = start_page(lead, **GROUP)
    late = refused()
    assert set(made.items.values_list("row", flat=True)) == ids
    assert (made.arguments, made.state) == ({"step": "tell"}, "asked")
    assert not FollowUp.objects.exists()
    boss = User.objects.create_superuser("boss")
    bulk.approve(made.pk, user=boss)
    while bulk.do_slice(0).changed:
        BulkOperation.objects.filter(pk=made.pk).update(next_at=timezone.now() - timedelta(seconds=2))
    assert set(FollowUp.objects.values_list("workflow", flat=True)) == ids
    assert late.pk not in ids


def start_page(client: Client, **group: str) -> BulkOperation:
    answer = client.post(PAGE, group)
    page = client.get(answer["Location"])
    assert "A worker runs this one step of each" in words(page.content.decode())
    client.post(answer["Location"], {"reason": "They take it now.", "pace": "50", "row": page.context["row_identity"]})
    return BulkOperation.objects.latest("id")


@pytest.mark.parametrize("group", [{}, {"step": "tell"}, {**GROUP, "code": "\x00"}])
def test_a_form_that_names_no_group_is_refused(as_: Login, group: dict[str, str]) -> None:
    assert as_("support").post(PAGE, group).status_code == 400


def test_who_may_not_run_a_step_again_sees_no_button(as_: Login) -> None:
    refused()
    auditor = as_("auditor")
    assert "again</button>" not in auditor.get(PAGE).content.decode()
    assert auditor.post(PAGE, GROUP).status_code == 403
    assert as_("nobody").get(PAGE).status_code == 403


# --- Races ----------------------------------------------------------------------------------------------


def test_what_two_operations_have_chosen_is_run_again_once(boss: User) -> None:
    row = refused()
    one, two = chosen(boss, row.pk), chosen(boss, row.pk)
    carried_out(one, boss)
    carried_out(two, boss)
    assert outcome_of(row, two) == ("skipped", IS_DUE)
    FollowUp.objects.update(due_at=None)
    rows.event(row, "follow_up_given_up", step="tell", detail={"error_code": "no_address"})
    three = chosen(boss, row.pk)
    rows.event(row, "follow_up_given_up", step="tell", detail={"error_code": "other"})
    carried_out(three, boss)
    assert outcome_of(row, three) == ("skipped", "It has failed again since you looked at it.")


def test_what_is_erased_or_gone_meanwhile_is_left_alone(boss: User) -> None:
    erased, gone, left = refused(), refused(), refused()
    made = chosen(boss, erased.pk, gone.pk, left.pk)
    Workflow.objects.filter(pk=erased.pk).update(emptied_at=timezone.now())
    rows.delete(gone)
    shown = bulk_previews.preview(made, boss)
    assert (shown.can, shown.cannot) == (1, [(1, "what it was sent was deleted"), (1, "deleted since")])
    carried_out(made, boss)
    assert [outcome_of(row, made)[0] for row in (erased, gone, left)] == ["skipped", "skipped", "done"]
    assert list(FollowUp.objects.values_list("workflow", flat=True)) == [left.pk]


def test_what_became_of_each_is_followed(boss: User) -> None:
    waits, done, failed, again, erased = (refused() for _ in range(5))
    made = carried_out(chosen(boss, *(each.pk for each in (waits, done, failed, again, erased))), boss)
    assert bulk_results.became(made)[made.pk] == {"under_way": 5}
    FollowUp.objects.filter(workflow=done).delete()
    FollowUp.objects.filter(workflow=failed).update(due_at=None)
    rows.event(again, "follow_up_asked", step="tell", actor="ada")
    rows.event(waits, "follow_up_asked", step="thank", actor="ada")  # of another step
    FollowUp.objects.filter(workflow=erased).delete()
    Workflow.objects.filter(pk=erased.pk).update(emptied_at=timezone.now())
    assert bulk_results.became(made)[made.pk] == dict.fromkeys(
        ("under_way", "followed_up", "given_up", "again", "deleted"), 1
    )


# --- The cost -------------------------------------------------------------------------------------------


def test_no_more_lines_of_the_history_are_read(boss: User, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = refused(), refused()
    monkeypatch.setattr(left_undone, "READ", 3)
    assert [each.ids for each in left_undone.groups()] == [[new.pk]]
    since = left_undone.reaches_back_to()
    assert since
    assert since < Event.objects.filter(workflow=new).latest("id").at
    monkeypatch.setattr(left_undone, "READ", 100)
    assert left_undone.reaches_back_to() is None
    monkeypatch.setattr(left_undone, "MOST", 1)
    assert [each.ids for each in left_undone.groups()] == [[new.pk]]
    assert old.pk < new.pk


def test_every_other_table_is_read_by_an_index(db: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workflows_workflow (idempotency_key, workflow_type, payload, status, completed_at)
               SELECT gen_random_uuid(), 'parcel', '{}', 'COMPLETE', now() FROM generate_series(1, 4000)"""
        )
        cursor.execute(
            """INSERT INTO workflows_event (workflow_id, kind, step)
               SELECT id, 'best_effort_failed', 'tell' FROM workflows_workflow"""
        )
        cursor.execute(
            """INSERT INTO workflows_effect (workflow_id, step, state, idempotency_key, attempt)
               SELECT id, 'charge', 'not_done', id, 1 FROM workflows_workflow"""
        )
        cursor.execute("ANALYZE workflows_workflow, workflows_event, workflows_effect, workflows_followup")
        asked = {"read": 1000, "most": 1000, "failed": ["best_effort_failed"], "told": ["x"], "in_doubt": ["intent"]}
        cursor.execute(f"EXPLAIN (FORMAT JSON) {left_undone.STATEMENT}", asked)
        (found,) = cursor.fetchone()
    plan = found if isinstance(found, str) else json.dumps(found)
    tables = {"workflows_workflow", "workflows_event", "workflows_effect"}
    scanned = [each for each in _nodes(json.loads(plan)[0]["Plan"]) if each.get("Relation Name") in tables]
    assert len(scanned) == 4
    assert "Seq Scan" not in [each["Node Type"] for each in scanned]


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(each for inner in plan.get("Plans", ()) for each in _nodes(inner))]
