"""What people may do with a queue or a type, in the console and from a shell; and how it is seen."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from tests.engine import submit
from tests.workflows import rows
from workflows.errors import NotAllowed
from workflows.features.doctor.installation import holds
from workflows.features.pace import operations as paces
from workflows.health import counts
from workflows.health.health import judge
from workflows.health.reasons import Level
from workflows.models import CircuitEvent, Pace
from workflows.operations.holding import LONGEST_HOLD

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
WAITS = {"invisible_until": timezone.now() - HOUR}


def hold(key: str = "queue:slow", **arguments: Any) -> None:
    paces.hold_queue(key, **{"until": timezone.now() + HOUR, "reason": " They move. ", **arguments})


def story() -> list[tuple[str, str, str]]:
    return list(CircuitEvent.objects.order_by("id").values_list("service", "kind", "actor"))


def test_it_is_held_paced_and_released_and_each_is_told(boss: User) -> None:
    submit(queue="slow")
    hold(user=boss)
    paces.set_pace("queue:slow", user=boss, per_second=2.5, reason="Gently.")
    row = Pace.objects.get()
    assert (row.held_by, row.held_reason, row.per_second, row.paced_by) == ("boss", "They move.", 2.5, "boss")
    paces.release_queue("queue:slow", user=boss, reason="Done.")
    paces.set_pace("queue:slow", user=boss, per_second=None, reason="Done.")
    row = Pace.objects.get()
    assert (row.held_until, row.held_by, row.per_second, row.paced_by) == (None, "", None, "")
    paces.set_cap("queue:slow", user=boss, at_once=3, reason="Gently.")
    row = Pace.objects.get()
    assert (row.at_once, row.capped_by) == (3, "boss")
    kinds = ("held", "paced", "released", "paced", "capped")
    assert [(key, kind) for key, kind, _ in story()] == [("queue:slow", kind) for kind in kinds]


def test_no_hold_is_without_an_end_a_reason_or_something_to_hold(boss: User) -> None:
    submit(queue="slow")
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("queue:nowhere", {}),
        ("type:nothing", {}),
        ("slow", {}),
        ("queue:slow", {"until": timezone.now() - HOUR}),
        ("queue:slow", {"until": timezone.now() + LONGEST_HOLD + HOUR}),
        ("queue:slow", {"reason": " "}),
    ]
    for key, arguments in wrong:
        with pytest.raises(NotAllowed):
            hold(key, user=boss, **arguments)
    for pace in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(NotAllowed):
            paces.set_pace("queue:slow", user=boss, per_second=pace, reason="x")
    assert not Pace.objects.exists()


def test_who_may_not_changes_nothing() -> None:
    user = User.objects.create(username="eve")
    rows.held_queue()
    for do in (
        lambda: hold(user=user),
        lambda: paces.release_queue("queue:slow", user=user, reason="x"),
        lambda: paces.set_pace("queue:slow", user=user, per_second=1.0, reason="x"),
        lambda: paces.set_cap("queue:slow", user=user, at_once=1, reason="x"),
    ):
        with pytest.raises(PermissionDenied):
            do()
    assert story() == []


@pytest.mark.parametrize("key", ["queue:EU", "type:parcel"])
def test_what_is_held_is_said_and_is_not_called_stuck(key: str) -> None:
    rows.worker(queue="EU")
    submit(queue="EU", workflow_type="parcel", **WAITS)
    assert judge(counts.read()).level == Level.TROUBLE
    rows.held_queue(key)
    told = judge(counts.read())
    assert (told.level, told.word) == (Level.SLOW, "Held")
    assert "is held by ada until" in str(told)
    assert "1 wait to begin" in str(told)
    (finding,) = holds()
    assert (finding.about, key.replace(":", " ") in finding.what) == ("held", True)
    submit(queue="EU", workflow_type="parcel", begun=True, **WAITS)
    assert judge(counts.read()).level == Level.TROUBLE, "what has begun is to go on"


def test_it_stands_above_every_page_until_it_ends(boss: User, client: Client) -> None:
    client.force_login(boss, backend="django.contrib.auth.backends.ModelBackend")
    rows.held_queue()
    assert "The queue slow is held by ada" in client.get("/admin/find/").content.decode()
    Pace.objects.update(held_until=timezone.now())
    assert "held by ada" not in client.get("/admin/find/").content.decode()


def run(*arguments: str) -> Any:
    out = StringIO()
    call_command("workflow", *arguments, "--actor", "boss", "--json", stdout=out)
    return json.loads(out.getvalue())


def test_the_same_from_a_shell(boss: User) -> None:
    submit(queue="slow")
    why = ("--reason", "They move.")
    assert run("hold", "queue:slow", "--for", "2h", *why, "--dry-run")["held_by"] == "boss"
    assert not Pace.objects.exists()
    assert run("hold", "queue:slow", "--for", "2h", *why)["held_by"] == "boss"
    assert run("cap", "queue:slow", "--at-once", "2", *why)["at_once"] == 2
    assert run("pace", "queue:slow", "--per-second", "5", *why) | {"held_until": ""} == {
        "what": "queue:slow",
        "held_until": "",
        "held_by": "boss",
        "per_second": 5.0,
        "at_once": 2,
        "wait_to_begin": 1,
    }
    assert run("release", "queue:slow", *why)["held_until"] is None
    for wrong in (
        ["release", "queue:slow", *why],
        ["hold", "queue:slow", "--for", "9d", *why],
        ["cap", "queue:slow", "--at-once", "2.5", *why],
    ):
        with pytest.raises(CommandError):
            run(*wrong)
    User.objects.update(is_superuser=False)
    with pytest.raises(CommandError, match="set_pace"):
        run("pace", "queue:slow", "--per-second", "none", *why)
