"""The colours of states say what the states mean: what is down is never green."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from tests.workflows.admin.conftest import Login
from tests.workflows.features.outages.services import open_circuit
from workflows import console
from workflows.features.outages.circuits import CircuitState
from workflows.models import BulkItem, BulkOperation, ManualTask, OutboxEvent, Pace, Service, State, UndeliveredMessage

CSS = Path(console.__file__).parent.parent / "static" / "workflows" / "console.css"
BAD = {
    *("failed", "rejected", "expired", "overdue", "circuit-open", "item-failed", "outbox-given_up"),
}
WAIT = {
    *("retrying", "waiting", "parked", "compensating", "open", "bulk-asked", "bulk-paused", "item-skipped"),
    *("message-open", "outbox-open", "circuit-tried", "circuit-suspected", "circuit-held"),
}
BUSY = {"running", "bulk-running"}
GOOD = {"complete", "approved", "message-redelivered", "outbox-sent", "item-done", "circuit-closed"}
KINDS = {
    *State.values,
    *ManualTask.State.values,
    *(f"circuit-{each}" for each in CircuitState),
    *(f"bulk-{each}" for each in BulkOperation.State),
    *(f"item-{each or 'open'}" for each in BulkItem.Outcome),
    *(f"message-{each or 'open'}" for each in UndeliveredMessage.State),
    *(f"outbox-{each or 'open'}" for each in OutboxEvent.State),
    *("overdue", "unlimited"),
}


def tone_of(kind: str, of: str = "badge") -> str:
    """The last rule of the stylesheet that names it decides, as in a browser."""
    rules = re.findall(r"([^{}]*)\{([^{}]*)\}", CSS.read_text())
    named = [body for selectors, body in rules if f".{of}-{kind}" in re.split(r"[\s,]+", selectors)]
    return re.findall(r"--state-(\w+)", named[-1])[0] if named else "idle"


def test_each_state_has_the_colour_of_what_it_means() -> None:
    expected = {"bad": BAD, "wait": WAIT, "busy": BUSY, "good": GOOD}
    tones = {kind: next((tone for tone, kinds in expected.items() if kind in kinds), "idle") for kind in KINDS}
    assert {kind: tone_of(kind) for kind in KINDS} == tones
    assert {state: tone_of(state, "bar") for state in State.values} == {state: tones[state] for state in State.values}


def badge(as_: Login, url: str) -> tuple[str, str]:
    html = as_("superuser").get(url).content.decode()
    ((kind, label),) = re.findall(r'<h1>.*?<span class="badge badge-([^"]*)">([^<]*)</span>', html, re.DOTALL)
    return kind, unescape(label)


@pytest.mark.parametrize("is_capped", [False, True])
def test_where_a_service_is_capped_its_badge_says_whether_it_is_up(as_: Login, is_capped: bool) -> None:
    Service.objects.create(name="programs")
    if is_capped:
        Pace.objects.create(key="service:programs", at_once=2, capped_by="ada", capped_reason="They asked.")
    url = "/admin/workflows/pace/service:programs/change/"
    up = ("circuit-suspected", "Capped") if is_capped else ("circuit-closed", "Up")
    assert badge(as_, url) == up
    Service.objects.all().delete()
    open_circuit("programs")
    assert badge(as_, url) == ("circuit-open", "Down")
    assert badge(as_, "/admin/workflows/pace/queue:default/change/") == ("unlimited", "Not limited")


def test_the_history_of_what_is_paced_has_its_name(as_: Login) -> None:
    page = as_("engineer").get("/admin/workflows/pace/queue:default/history/").content.decode()
    assert "<h1>Change history: the queue default</h1>" in page
