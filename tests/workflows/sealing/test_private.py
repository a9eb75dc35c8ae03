"""Private workflows: nobody reads what they were sent once their key is gone, and nobody is charged twice."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests import engine
from tests.dumps import dump, restored
from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_
from tests.workflows.intake import entering
from tests.workflows.intake.entering import enter_together, new
from tests.workflows.undoing import ada
from workflows import operations
from workflows.charges import charges_of
from workflows.definition import Retry, Step, WorkflowDefinition
from workflows.doctor.comparison import Kind, compare
from workflows.errors import NotAllowed, RetryableStepError, StepError
from workflows.intake.submissions import Entry, KeyReused, enter
from workflows.models import ContentKey, Effect, FollowUp, ManualTask, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.content_key import Unopened
from workflows.models.search import SearchKeyHash
from workflows.operations import corrections, payments
from workflows.postgres.jsonb import SEALED, parse
from workflows.postgres.statements import fetch_row
from workflows.retention import content, holds
from workflows.sealing import private
from workflows.sealing.envelopes import KeyLacking, Unreadable
from workflows.sealing.key_register import require_keys
from workflows.search import normalise
from workflows.search.search_keys import SearchKey
from workflows.signals import store
from workflows.waits import Child, require_approval, wait_for_children
from workflows.wording import Money, Wording

__all__ = ["as_"]

pytestmark = engine.ENGINE

CANARY = "canary-of-ada"
seen: list[Any] = []


def remembers(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    seen.append(workflow.payload["name"])
    return {"text": f"{CANARY} was here"}


@pytest.fixture(autouse=True)
def private_definition(engine: None) -> None:
    define(remembers)
    seen.clear()


def define(*steps: Any) -> None:
    engine.define(steps, private=True, revealable=["name"])


def send(value: str = f'{{"name": "{CANARY}", "n": 1}}', key: UUID | None = None) -> Entry:
    return enter(engine.DEFINITION, idempotency_key=key or uuid4(), payload=parse(value.encode()), submitted_by="shop")


def drain() -> None:
    engine.worker().run(drain=True)


def stored(entry: Entry) -> str:
    """The whole row, as it stands in the table."""
    (row,) = fetch_row("SELECT to_json(w)::text FROM workflows_workflow w WHERE id = %s", [entry.id])
    return str(row)


def test_neither_what_was_sent_nor_what_steps_recorded_is_in_the_row_and_both_are_read_in_clear() -> None:
    entry = send()
    assert CANARY not in stored(entry)
    drain()
    assert seen == [CANARY]
    assert CANARY not in stored(entry)
    row = Workflow.objects.get()
    assert (row.status, row.payload, row.context["text"]) == (
        "COMPLETE",
        {"name": CANARY, "n": 1},
        f"{CANARY} was here",
    )


def test_the_key_is_written_in_the_transaction_that_writes_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    send()
    definition = WorkflowDefinition(name="test", steps=[remembers], context_class=engine.Context, private=True)
    monkeypatch.setattr(entering, "DEFINITION", definition)
    sent = [entering.submission({"name": CANARY, "n": n}) for n in range(3)]
    assert all(map(new, enter_together(*sent)))
    number, keys = fetch_row(
        """SELECT count(*), count(k) FROM workflows_workflow w
             LEFT JOIN workflows_contentkey k ON k.idempotency_key = w.idempotency_key AND k.xmin = w.xmin"""
    )
    assert number == keys == 4
    again = enter_together(*sent[:2], entering.submission({"name": "another"}, key=sent[2].key))
    assert [type(each) for each in again] == [Entry, Entry, KeyReused]


def test_a_plain_workflow_has_no_key_and_its_statements_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []

    def note(execute: Any, sql: Any, *rest: Any) -> Any:
        statements.append(str(sql))
        return execute(sql, *rest)

    engine.define([remembers])
    with connection.execute_wrapper(note):
        entry = send()
        drain()
    assert CANARY in stored(entry)
    assert not [each for each in statements if "contentkey" in each]
    engine.define([remembers], private=True)
    with connection.execute_wrapper(note):
        send()
        drain()
    assert len([each for each in statements if "contentkey" in each]) == 1


@pytest.mark.parametrize(
    ("again", "same"),
    [
        ('{"n": 1.0, "name": "ada"}', True),
        ('{"name": "ada", "n": true}', False),
        ('{"name": "ada", "n": 1.00000000000000000000001}', False),
        ('{"name": "ada"}', False),
    ],
)
def test_what_is_sent_again_is_compared_as_postgresql_compares(again: str, *, same: bool) -> None:
    entry = send('{"name": "ada", "n": 1}')
    key = Workflow.objects.get().idempotency_key
    if same:
        assert send(again, key).id == entry.id
    else:
        with pytest.raises(KeyReused):
            send(again, key)


def test_what_was_sent_before_and_does_not_open_is_taken_for_the_same(settings: Any) -> None:
    entry, key = send(), Workflow.objects.get().idempotency_key
    settings.DATA_KEYS, keys = ["another"], settings.DATA_KEYS
    with pytest.raises(KeyLacking):
        send(key=key)
    settings.DATA_KEYS = keys
    ContentKey.objects.update(wrapped=private.Key.new(key).wrapped)
    assert send(key=key).id == entry.id


def test_those_behind_go_on_at_once_when_the_first_is_cancelled_before_a_step_of_it_runs() -> None:
    def waits(*, workflow: Workflow, context: Any) -> None:
        seen.append(workflow.pk)
        raise RetryableStepError("Not now.", base_delay=3600)

    engine.define([waits], private=True, business_key="name")
    first, second = send(), send()
    drain()
    asked = {"workflow_id": first.id, "name": store.CANCEL_SIGNAL, "payload": {"by": "ada", "reason": ""}}
    store.send(source="test", dedupe_key="cancel", **asked)
    drain()
    assert seen == [first.id, second.id]


@pytest.mark.parametrize("was_private", [True, False])
def test_a_definition_that_becomes_private_or_ceases_to_be_knows_its_rows(*, was_private: bool) -> None:
    engine.define([remembers], private=was_private)
    key = uuid4()
    entry = send(key=key)
    engine.define([remembers], private=not was_private)
    assert send(key=key).id == entry.id
    drain()
    assert seen == [CANARY]
    assert (CANARY in stored(entry)) != was_private


@pytest.mark.parametrize("wrapped", ["no base64", "c2hvcnQ="])
def test_what_is_no_key_opens_nothing(wrapped: str) -> None:
    send()
    ContentKey.objects.update(wrapped=wrapped)
    drain()
    asked = ManualTask.objects.get()
    assert (seen, asked.task_type, engine.due_in(asked)) == ([], "secrets_unreadable", "1 d")


def test_a_page_of_several_reads_their_keys_by_one_statement(as_: Login) -> None:
    search_keys = {"name": SearchKey("name", normalise.plain)}
    engine.define([Step(remembers, once=True, returns=("text",))], private=True, search_keys=search_keys)
    sent = [send().id for _ in range(3)]
    drain()
    ContentKey.objects.filter(pk=Workflow.objects.get(pk=sent[0]).idempotency_key).delete()
    support = as_("support")
    with CaptureQueriesContext(connection) as queries:
        html = support.post("/admin/find/", {"q": CANARY}).content.decode()
    assert all(f"/workflow/{pk}/" in html for pk in sent)
    of_keys = [each["sql"] for each in queries if "contentkey" in each["sql"]]
    assert len(of_keys) == 3, "of the one without a key each sealed value looks again"


def test_a_key_that_a_restore_has_left_behind_is_replaced() -> None:
    key = uuid4()
    ContentKey.objects.create(idempotency_key=key, wrapped=private.Key.new(key).wrapped)
    send(key=key)
    drain()
    assert seen == [CANARY]


@pytest.mark.parametrize("opens", [True, False])
def test_what_is_emptied_has_no_key_and_no_search_key(settings: Any, *, opens: bool) -> None:
    money = Wording(money=Money("pay", "order.amount", "order.currency", "id", "id"))
    search_keys = {"name": SearchKey("name", normalise.plain)}
    engine.define([remembers], private=True, wording=money, search_keys=search_keys)
    entry = send(f'{{"name": "{CANARY}", "order": {{"amount": 5, "of": "{CANARY}"}}}}')
    drain()
    assert SearchKeyHash.objects.exists()
    if not opens:
        settings.DATA_KEYS = ["another"]
    assert holds.addresses_in("test", Workflow.objects.get().payload) == {}, "it has none, whether it opens or not"
    content.empty([entry.id])
    assert not ContentKey.objects.exists()
    assert not SearchKeyHash.objects.exists()
    assert Workflow.objects.get().payload == {"order": {"amount": 5}}


def test_without_its_key_nothing_is_run_and_a_person_is_asked_until_it_is_back(as_: Login) -> None:
    entry, other = send(), send('{"name": "grace"}')
    key = Workflow.objects.get(pk=entry.id).idempotency_key
    lost = ContentKey.objects.get(pk=key)
    ContentKey.objects.filter(pk=lost.pk).delete()
    drain()
    assert seen == ["grace"]
    row = Workflow.objects.get(pk=entry.id)
    assert isinstance(row.payload, Unopened)
    assert row.payload == {}
    page = as_("support lead").get(f"/admin/workflows/workflow/{entry.id}/change/").content.decode()
    assert "What was sent: The key of this workflow is deleted." in page
    assert "Reveal: What it was sent cannot be read." in page
    with pytest.raises(NotAllowed, match="cannot be read"):
        operations.reveal(entry.id, user=ada(), fields=["name"], reason="To call.")
    assert send('{"name": "nobody can tell"}', key).id == entry.id, "it would be charged twice"
    task = ManualTask.objects.get(state="open")
    assert (task.workflow_id, task.question) == (entry.id, "What was sent cannot be read. May it be tried again?")
    ContentKey.objects.bulk_create([lost])
    operations.approve(task.pk, user=ada())
    drain()
    assert seen == ["grace", CANARY]
    assert Workflow.objects.get(pk=other.id).status == "COMPLETE"


def test_content_of_another_row_or_column_is_not_run() -> None:
    entry, other = send(), send('{"name": "grace"}')
    theirs = fetch_row("SELECT payload::text FROM workflows_workflow WHERE id = %s", [other.id])[0]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_workflow SET payload = %s WHERE id = %s", [theirs, entry.id])
    drain()
    assert seen == ["grace"]
    with connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_workflow SET payload = context, status = 'PENDING', completed_at = NULL")
    drain()
    assert seen == ["grace"]
    asked = ManualTask.objects.filter(task_type="secrets_unreadable").values_list("workflow", flat=True)
    assert set(asked) == {entry.id, other.id}


def test_what_a_call_returned_is_sealed_but_for_what_names_the_charge() -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        seen.append("called")
        return {"text": CANARY, "number": 7}

    def busy(*, workflow: Workflow, context: Any) -> None:
        seen.append(context.text)
        raise RetryableStepError(base_delay=0)

    money = Wording(money=Money("call", "amount", "currency", "number", "refund"))
    engine.define([Step(call, once=True, returns=("text", "number")), busy], private=True, wording=money)
    row = Workflow.objects.get(pk=send().id)
    engine.work(row)
    engine.again(row)
    assert seen == ["called", CANARY, CANARY]
    stored = json.loads(fetch_row("SELECT result::text FROM workflows_effect")[0])
    assert (stored["number"], CANARY in str(stored)) == (7, False)
    assert Effect.objects.get().result == {"text": CANARY, "number": 7}
    with connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_effect SET result = %s", [json.dumps(stored | {SEALED: str(uuid4())})])
    row = engine.again(row)
    assert (row.status, row.last_error_code, seen.count("called")) == ("FAILED", "content_unreadable", 1)


def test_a_call_that_cannot_be_read_is_not_taken_for_one_that_called_nothing() -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"text": "ch-1"}

    def look(*, workflow: Workflow, context: Any, effect: Any) -> None:
        seen.append(effect.result)

    define(Step(call, once=True, lookup=look, settle=1.0, returns=("text",)))
    send()
    drain()
    kinds = [Kind.NOT_AT_SERVICE]
    for _ in range(2):
        assert [each.kind for each in compare(datetime.min.replace(tzinfo=UTC), print)] == kinds
        ContentKey.objects.all().delete()
        kinds = [Kind.NOT_TOLD]
    assert seen == [{"text": "ch-1"}], "what is asked about another charge answers about that"


@pytest.mark.parametrize("then", [None, Money("call", "amount", "currency", "other", "refund")])
def test_what_was_sealed_before_its_definition_named_the_charge_may_have_charged(then: Money | None) -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"number": 7} if workflow.payload["name"] == "pays" else {}

    def refuse(*, workflow: Workflow, context: Any) -> None:
        raise StepError("No.", code="no")

    steps, money = [Step(call, once=True, returns=()), refuse], Money("call", "amount", "currency", "number", "refund")
    engine.define(steps, private=True, wording=Wording(money=then))
    before = send('{"name": "pays"}').id
    drain()
    engine.define(steps, private=True, wording=Wording(money=money))
    pays, free = send('{"name": "pays"}').id, send('{"name": "free"}').id
    drain()
    assert payments.charged_among([before, pays, free]) == {before, pays}
    ContentKey.objects.all().delete()
    told = {row.pk: [each.state for each in charges_of(row)] for row in Workflow.objects.all()}
    assert told == {before: ["unclear"], pays: ["charged"], free: ["nothing"]}


def test_what_a_deferred_step_returned_is_sealed() -> None:
    def later(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        seen.append(workflow.payload["name"])
        if len(seen) == 1:
            raise RetryableStepError("Not now.")
        return {"text": CANARY}

    define(Step(later, best_effort=True, once=True, follow_up=Retry(base_delay=0), returns=("text",)))
    send()
    drain()
    FollowUp.objects.update(due_at=ClockTimestamp())
    drain()
    assert seen == [CANARY] * 2
    assert Effect.objects.get().result == {"text": CANARY}
    assert CANARY not in str(fetch_row("SELECT result FROM workflows_effect"))


def test_without_its_key_a_deferred_step_is_left_for_people() -> None:
    def later(*, workflow: Workflow, context: Any) -> None:
        seen.append("tried")
        raise RetryableStepError("Not now.")

    define(Step(later, best_effort=True, once=True, follow_up=Retry(base_delay=3600), returns=()))
    send()
    drain()
    ContentKey.objects.all().delete()
    FollowUp.objects.update(due_at=ClockTimestamp())
    drain()
    assert (seen, FollowUp.objects.count()) == (["tried"], 1)


def test_duplicates_are_told_and_search_keys_made_from_what_is_sealed(settings: Any) -> None:
    engine.define([remembers], private=True, business_key="name", search_keys={"name": SearchKey("name", str.split)})
    send()
    send()
    drain()
    assert seen == [CANARY]
    before = set(SearchKeyHash.objects.values_list("hash", flat=True))
    SearchKeyHash.objects.all().delete()
    call_command("searchkeys", "fill", stdout=StringIO())
    assert set(SearchKeyHash.objects.values_list("hash", flat=True)) == before
    settings.DATA_KEYS = ["another"]
    with pytest.raises(Unreadable):  # else the old keys would be removed, as if all had new ones
        call_command("searchkeys", "fill", stdout=StringIO())
    ContentKey.objects.all().delete()
    call_command("searchkeys", "fill", stdout=StringIO())


def parent_or_child(*, workflow: Workflow, context: Any) -> dict[str, Any] | None:
    if workflow.payload["name"] == "child":
        return {"text": CANARY}
    child = Child("test", {"name": "child"})
    (outcome,) = wait_for_children(workflow, "children", [child], timeout=timedelta(days=1))
    seen.append(outcome.context["text"])
    raise RetryableStepError("Not now.", base_delay=3600)


def test_a_parent_does_not_go_on_without_what_its_children_recorded() -> None:
    define(parent_or_child)
    parent = Workflow.objects.get(pk=send().id)
    drain()
    assert seen == [CANARY]
    assert CANARY not in str(fetch_row("SELECT result FROM workflows_wait"))
    ContentKey.objects.exclude(pk=parent.idempotency_key).delete()
    assert engine.again(parent).waiting_for.startswith("What a workflow that it has started has recorded cannot be")
    operations.reject(ManualTask.objects.get(state="open").pk, user=ada(), reason="It is lost.")
    assert engine.again(parent).status == "FAILED"
    assert seen == [CANARY]


def test_while_the_keys_are_changed_a_parent_waits_for_a_worker_that_has_the_key_of_its_child(settings: Any) -> None:
    engine.define([parent_or_child])
    parent = Workflow.objects.get(pk=send().id)
    define(parent_or_child)
    old, new = settings.DATA_KEYS, ["the-new-one", *settings.DATA_KEYS]
    settings.DATA_KEYS = new
    require_keys()
    drain()
    settings.DATA_KEYS = old
    assert engine.again(parent).waiting_for == "a worker that has the key of its secrets"
    settings.DATA_KEYS = new
    engine.again(parent)
    assert seen == [CANARY] * 2


def test_the_keys_of_what_is_complete_are_rotated_whole(settings: Any) -> None:
    send()
    drain()
    settings.DATA_KEYS = ["the-new-one", *settings.DATA_KEYS]
    call_command("datakeys", "rotate", stdout=StringIO())
    settings.DATA_KEYS = ["the-new-one"]
    assert Workflow.objects.get().payload == {"name": CANARY, "n": 1}


def test_without_its_key_no_call_is_undone_but_a_person_asked(settings: Any) -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"text": "ch-1"}

    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        seen.append(effect.result["text"])

    def refuse(*, workflow: Workflow, context: Any) -> None:
        settings.DATA_KEYS = ["another"]
        raise StepError("No.", code="no")

    define(Step(call, once=True, undo=undo, undo_lookup=undo, returns=()), refuse)
    keys = settings.DATA_KEYS
    send()
    drain()
    assert not seen
    task = ManualTask.objects.get(state="open")
    operations.reject(task.pk, user=ada(), reason="Once more.")
    drain()
    assert not seen
    assert (Workflow.objects.get().compensating, Effect.objects.get().state) == (True, "done")
    settings.DATA_KEYS = keys
    engine.due_again(Workflow.objects.get())
    drain()
    assert (seen, Workflow.objects.get().status) == (["ch-1"], "FAILED")


def test_a_call_whose_result_cannot_be_read_is_not_undone_but_a_person_asked() -> None:
    def call(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"text": "ch-1"}

    def undo(*, workflow: Workflow, context: Any, effect: Any) -> None:
        seen.append(effect.result)

    def waits(*, workflow: Workflow, context: Any) -> None:
        raise RetryableStepError("Not now.", base_delay=3600)

    define(Step(call, once=True, undo=undo, undo_lookup=undo, returns=()), waits)
    row = Workflow.objects.get(pk=send().id)
    drain()
    Effect.objects.update(result={SEALED: f"{row.idempotency_key}:result:"})
    engine.make_due(row)
    drain()
    assert not seen
    assert ManualTask.objects.get(state="open").task_type == "undo_in_doubt"


def test_a_private_workflow_is_not_corrected() -> None:
    def refuses(*, workflow: Workflow, context: Any) -> None:
        raise StepError("No.", code="no")

    with pytest.raises(ValueError, match="private"):
        engine.define([remembers], private=True, correctable=rows.PARCEL.correctable)
    send()
    engine.define(
        [Step(refuses, name="reserve", once=True, returns=())], correctable=rows.PARCEL.correctable
    )  # its type is not private any more
    drain()
    with pytest.raises(NotAllowed, match="It was stored as private"):
        corrections._require_correctable(Workflow.objects.with_state().get(), ada())


def test_a_backup_of_the_day_before_cannot_be_read_once_the_key_is_deleted() -> None:
    def asks(*, workflow: Workflow, context: Any) -> None:
        facts = {"Name": workflow.payload["name"]}
        require_approval(workflow, "w", question="May it?", facts=facts, timeout=timedelta(days=1))

    define(Step(remembers, once=True, returns=("text",)), asks)
    erased, kept = send(), send('{"name": "grace"}')
    drain()
    operations.approve(ManualTask.objects.get(workflow=erased.id).pk, user=ada())
    drain()
    # As docs/data.md says: what is kept for long is kept without the keys, which have backups of their own.
    of_the_day_before = dump("--exclude-table-data=workflows_contentkey")
    Workflow.objects.filter(pk=erased.id).update(completed_at=ClockTimestamp() - timedelta(days=91))
    content.empty([erased.id])
    assert CANARY not in of_the_day_before
    with restored(of_the_day_before), connection.cursor() as cursor:
        cursor.execute("SELECT id, payload FROM workflows_workflow")
        found = {pk: json.loads(payload) for pk, payload in cursor.fetchall()}
        assert not ContentKey.objects.exists()
    assert isinstance(private.opened(found[erased.id]), Unopened)
    assert private.opened(found[kept.id]) == {"name": "grace"}
