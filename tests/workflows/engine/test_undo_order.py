"""Calls are undone in the reverse of the order in which they were started, also if a clock was set back in between."""

from __future__ import annotations

from django.db import connection

from tests import engine
from tests.engine import again, define, submit, work
from tests.workflows.undoing import World, fail, to_rest
from workflows.errors import RetryableStepError
from workflows.models import Effect

pytestmark = engine.ENGINE


def begun_earlier(step: str) -> None:
    """By the clock, which was set back before this call."""
    with connection.cursor() as cursor:
        back = "begun_at = begun_at - interval '10 minutes', first_begun_at = first_begun_at - interval '10 minutes'"
        cursor.execute(f"UPDATE workflows_effect SET {back} WHERE step = %s", [step])


def undone(world: World) -> list[str]:
    return [line for line in world.log if line.startswith("undo")]


def test_a_clock_that_was_set_back_between_two_calls_changes_no_order(world: World) -> None:
    define([world.step("reserve"), world.step("charge"), world.step("ship"), fail])
    workflow = work(submit())
    begun_earlier("charge")
    to_rest(workflow)
    assert undone(world) == ["undo ship", "undo charge", "undo reserve"]


def test_a_call_that_was_started_again_counts_from_then(world: World) -> None:
    """Its row is the older one: the step came first, was refused, and comes last by now."""
    world.errors["charge"] = [RetryableStepError("not sent", base_delay=0)]
    charge, reserve = world.step("charge"), world.step("reserve")
    define([charge, fail])
    workflow = work(submit())
    define([reserve, charge, fail])
    workflow = again(workflow)
    begun_earlier("charge")
    to_rest(workflow)
    assert undone(world) == ["undo charge", "undo reserve"]


def test_an_undo_by_lookup_keeps_its_place(world: World) -> None:
    define([world.step("reserve"), world.step("charge", lookup=world.lookup, settle=0), world.step("ship"), fail])
    world.found["charge"] = {"tags": ["charge"]}
    workflow = work(submit())
    Effect.objects.filter(step="charge").update(state="unknown")
    begun_earlier("charge")
    to_rest(workflow)
    assert undone(world) == ["undo ship", "undo charge", "undo reserve"]
