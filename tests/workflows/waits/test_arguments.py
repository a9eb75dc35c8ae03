"""What no row could hold of a step's own words is the step's failure: no statement is sent that would be refused."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel, create_model

from tests import engine
from tests.engine import define, submit, work
from workflows.models import Wait, Workflow
from workflows.waits import Child, require_approval, wait_for_children, wait_for_signal, wait_for_time
from workflows.waits.wait import WaitError

pytestmark = engine.ENGINE

HOUR = timedelta(hours=1)
NUL, HALF = "nul \x00", "half \ud800"
AGES_AGO = timedelta(days=-999_999_999)

LONG = create_model("L" * 300)
globals()["L" * 300] = LONG
LONG.__module__ = __name__


def ask(**options: Any) -> Callable[[Workflow], Any]:
    arguments = {"name": "review", "question": "May it go on?", "timeout": HOUR, **options}
    return lambda workflow: require_approval(workflow, arguments.pop("name"), **arguments)


def pause(name: Any = "pause", delay: Any = HOUR) -> Callable[[Workflow], Any]:
    return lambda workflow: wait_for_time(workflow, name, delay)


def listen(name: Any = "payment", signals: Any = "paid", **options: Any) -> Callable[[Workflow], Any]:
    return lambda workflow: wait_for_signal(workflow, name, signals, **{"timeout": HOUR, **options})


def start(
    name: Any = "children", payload: Any = None, key: Any = "a", timeout: Any = HOUR
) -> Callable[[Workflow], Any]:
    return lambda workflow: wait_for_children(workflow, name, [Child("test", payload or {}, key)], timeout=timeout)


def outcome_of(wait: Callable[[Workflow], Any]) -> tuple[str, str]:
    """How a workflow ends, and its error's class, when its one step waits so."""

    def step(*, workflow: Workflow, context: Any) -> None:
        wait(workflow)

    define([step])
    workflow = work(submit())
    return workflow.status, workflow.last_error_class


def refuses_all(waits: Iterable[Callable[[Workflow], Any]], error: type[Exception]) -> bool:
    """Whether each of them raises the error: one step tries them all, and would not complete if one waited."""

    def step(*, workflow: Workflow, context: Any) -> None:
        for wait in waits:
            with pytest.raises(error):
                wait(workflow)

    define([step])
    return work(submit()).status == "COMPLETE"


def test_what_no_row_could_hold_is_the_steps_failure() -> None:
    assert outcome_of(pause("")) == ("FAILED", "workflows.waits.wait.WaitError")
    waits = [
        *(pause(name) for name in ("", NUL, HALF, "n" * 201, 7, None)),
        *(pause(delay=delay) for delay in (AGES_AGO, timedelta.max, 5, None)),
        *(listen(name) for name in (NUL, 7)),
        *(listen(signals=names) for names in (NUL, "x" * 300, [], ["paid", HALF])),
        *(listen(waiting_for=words) for words in (NUL, HALF, 7)),
        *(listen(timeout=time) for time in (AGES_AGO, timedelta.max, timedelta(days=3_000_000))),
        *(listen(look=dict, look_every=timedelta(milliseconds=every)) for every in (0, -5, 1)),
        *(ask(name=name) for name in (NUL, HALF, "n" * 201, 7)),
        *(ask(question=words) for words in (NUL, HALF, 7, None)),
        *(ask(facts=facts) for facts in ({"a": NUL}, {NUL: "a"}, {"a": HALF}, {"a": float("nan")}, {"a": 10**5000})),
        *(ask(facts=facts) for facts in ({"a": User()}, {7: "a", "b": object()})),
        *(ask(task_type=name) for name in (NUL, "t" * 101, 7)),
        *(ask(**{who: name}) for who in ("team", "assignee", "requested_by") for name in (NUL, HALF, "u" * 151, 7)),
        *(ask(due=due) for due in (AGES_AGO, timedelta.max, 5)),
        *(ask(timeout=time) for time in (AGES_AGO, timedelta.max)),
        *(ask(on_expiry=word) for word in ("ignored", "expired at last", "", NUL)),
        *(ask(form=form) for form in (LONG, create_model("NowhereToBeFound", weight=(int, ...)))),
        *(start(name) for name in (NUL, "n" * 195, 7)),
        *(start(key=key) for key in (NUL, HALF, "k" * 201, 7)),
        start(timeout=timedelta.max),
    ]
    assert refuses_all(waits, WaitError)
    assert not Wait.objects.exists()


def test_nor_what_json_or_jsonb_refuses() -> None:
    waits = [
        *(listen(matching=what) for what in ({"a": NUL}, {"a": HALF}, {"a": float("nan")}, {"a": object()})),
        *(listen(look=lambda what=what: what) for what in ({"a": NUL}, {"a": float("inf")}, {"a": object()})),
        *(start(payload=what) for what in ({"a": NUL}, {HALF: 1}, {"a": float("nan")}, {"a": object()})),
    ]
    assert refuses_all(waits, Exception)


class Form(BaseModel):
    weight: int


@pytest.mark.parametrize(
    "wait",
    [
        pause("ü" * 200, timedelta(days=36_500)),
        pause(delay=timedelta(days=-36_500)),
        ask(facts={"Größe": "1,80 m", "Bytes": 10**4000, "Anzahl": 3}, task_type="t" * 100, form=Form, four_eyes=0),
        start("c" * 194, key="k" * 200),
    ],
)
def test_what_a_row_can_just_hold_is_taken(wait: Callable[[Workflow], Any]) -> None:
    assert outcome_of(wait)[0] != "FAILED"
