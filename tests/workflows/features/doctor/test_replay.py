"""A replay: what would differ is told, nothing goes out of the process, and nothing is kept."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from tests import engine
from tests.engine import define, submit, work
from tests.workflows.operations.test_bulk import member
from workflows.definition import Step
from workflows.effects import key_for
from workflows.errors import StepError
from workflows.features.doctor.replay import Replay, replay
from workflows.models import Access, Effect, Event, Wait, Workflow
from workflows.outages import call_to
from workflows.signals import store
from workflows.waits import wait_for_signal

pytestmark = engine.ENGINE

called: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    called.clear()


def ask(service: str) -> None:
    with call_to(service):
        called.append(service)


def look(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    ask("profiles")
    return {"text": "Ada"}


def charge(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    key_for(workflow, "charge")
    ask("bank")
    return {"number": 145}


def double(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"tags": [str(context.text), str(context.number)]}


def refuse(*, workflow: Workflow, context: Any) -> None:
    raise StepError("No.", code="refused")


def await_word(*, workflow: Workflow, context: Any) -> None:
    wait_for_signal(workflow, "word", "word", timeout=timedelta(days=1), waiting_for="their word")


def undo(**_: Any) -> None: ...


CHARGE = Step(charge, once=True, undo=undo, returns=("number",))
LIST = [look, CHARGE, double]


def replayed(row: Workflow, *steps: Any) -> Replay:
    before = kept()
    called.clear()
    if steps:
        define(steps)
    found = replay(row.pk, engine.DEFINITION)
    assert (called, kept()) == ([], before), "a replay calls nothing, and keeps nothing"
    return found


def kept() -> list[Any]:
    return [[*table.objects.order_by("pk").values_list()] for table in (Workflow, Effect, Event)]


def does(found: Replay) -> dict[str, str]:
    return {line.step: line.does for line in found.lines}


def ran(*steps: Any) -> Workflow:
    define(steps)
    return work(submit())


def test_the_same_list_does_what_the_history_says_and_calls_nothing() -> None:
    found = replayed(ran(*LIST))
    assert does(found) == {"look": "ran", "charge": "recorded", "double": "ran"}
    assert (found.differs, found.ends) == (False, "COMPLETE")


def test_it_says_step_by_step_what_another_list_would_do() -> None:
    row = ran(*LIST)

    def halve(*, workflow: Workflow, context: Any) -> dict[str, Any]:
        return {"tags": ["other"]}

    found = replayed(row, CHARGE, look, Step(halve, name="double"), Step(charge, once=True, name="charge_again"))
    assert [line.differs for line in found.lines] == [
        "the history: look, charge, double",
        "",
        "",
        "another result: tags",
        "new: the history has no such step",
    ]
    assert (found.ends, found.lines[-1].why) == ("charge_again: would call", "It calls bank: refused.")
    assert found.changed == {"tags": (["Ada", "145"], ["other"])}
    gone = replayed(row, look, double)
    assert "not in this list" in [line.differs for line in gone.lines]
    assert "does not declare: charge" in gone.notes[0]


@pytest.mark.parametrize("steps", [(look, CHARGE, refuse), (look, await_word), (look, refuse)])
def test_what_failed_was_undone_or_waits_ends_where_it_did(steps: Any) -> None:
    row = ran(*steps)
    if row.compensating:
        row = engine.again(row)
    found = replayed(row)
    assert (found.differs, found.ends) == (False, found.history_ends)
    assert replayed(row, look, CHARGE, double).ends != found.ends


def test_a_call_in_doubt_is_neither_made_nor_taken_for_done() -> None:
    row = ran(*LIST)
    for state in ("unknown", "kept"):  # a person may have left it as it is all the same
        Effect.objects.update(state=state, result=None)
        assert does(replayed(row))["charge"] == "unclear", state
    Effect.objects.all().delete()
    found = replayed(row)
    assert (found.ends, found.differs) == ("charge: would call", True)


def test_a_wait_that_has_failed_it_is_no_difference() -> None:
    row = ran(await_word)
    Wait.objects.update(deadline=row.created_at)
    assert engine.again(row).status == "FAILED"
    found = replayed(row)
    assert (found.ends, found.differs) == ("await_word: failed, wait_expired", False)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


@pytest.mark.parametrize("once", [False, True])
def test_what_goes_around_the_clients_is_refused_too(listener: socket.socket, tmp_path: Path, once: bool) -> None:
    address, file = listener.getsockname(), tmp_path / "written"

    def by_socket() -> None:
        socket.create_connection(address).close()

    def by_process() -> None:
        subprocess.run(["touch", file], check=True)

    def by_file() -> None:
        file.write_text("x")

    row = ran(double)
    for way in (by_socket, by_process, by_file, lambda: ask("bank")):

        def step(*, workflow: Workflow, context: Any, way: Callable[[], None] = way) -> dict[str, Any]:
            with suppress(BaseException):  # as a bare `except:` does
                way()
            return {"number": 1}

        found = replayed(row, double, Step(step, once=once))
        assert found.ends == "step: would call"
    assert not file.exists()
    with pytest.raises(BlockingIOError):
        listener.accept()
    by_socket()  # afterwards all is as before


def test_a_step_that_commits_keeps_nothing() -> None:
    row = ran(double)

    def commits(*, workflow: Workflow, context: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE workflows_workflow SET current_step = 'kept'")
            cursor.execute("COMMIT")

    assert replayed(row, commits).ends.startswith("commits: failed")


def test_the_command_tells_it_and_values_only_to_who_may_see_them_on_record() -> None:
    row = ran(*LIST)
    define([look, CHARGE, Step(lambda **_: {"tags": ["Grace"]}, name="double")])
    lead = member("support lead")

    def told(*arguments: str) -> Any:
        out = StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command(
                "workflow", "replay", str(row.pk), "--actor", lead.username, "--definition", "tests.engine.DEFINITION",
                "--json", *arguments, stdout=out,
            )  # fmt: skip
        assert ended.value.code == 3
        return json.loads(out.getvalue())

    masked = told()
    assert "another result: tags" in json.dumps(masked)
    assert "Grace" not in json.dumps(masked)
    assert told("--reveal", "--reason", "She called.")["values"] == ['tags: ["Ada", "145"] -> ["Grace"]']
    reveal = Access.objects.get(kind="revealed")
    assert (reveal.actor, reveal.detail) == (lead.username, {"fields": ["replay: tags"], "purpose": "She called."})


def test_a_wait_that_was_renamed_differs_and_one_that_comes_next_does_not() -> None:
    def waits(*names: str) -> None:
        def wait(*, workflow: Workflow, context: Any) -> None:
            for name in names:
                wait_for_signal(workflow, name, name, timeout=timedelta(days=1))

        define([wait])

    waits("paid", "shipped")
    workflow = work(submit())
    assert not replay(workflow.pk, engine.DEFINITION).differs
    waits("settled", "shipped")
    [line] = replay(workflow.pk, engine.DEFINITION).lines
    assert line.differs == "another wait than paid"
    waits("paid", "shipped")
    store.send(source="shop", dedupe_key="1", name="paid", workflow_id=workflow.pk, payload={})
    assert not replay(workflow.pk, engine.DEFINITION).differs
