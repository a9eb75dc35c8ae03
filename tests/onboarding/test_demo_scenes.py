"""The scenes of the demo: what is arranged for each, and for no other. That they come out so is seen in test_demo."""

from __future__ import annotations

from typing import Any

import pytest

from onboarding.demo.scenes import OUTAGE, Scene, scenes, sights
from onboarding.samples import samples
from onboarding.sandbox.faults import FaultBook
from onboarding.sandbox.store import Store
from workflows.models import Service, State


def test_the_same_seed_makes_the_same_scenes_and_another_seed_other_ones() -> None:
    keys = [scene.key for scene in scenes(7)]
    assert [scene.key for scene in scenes(7)] == keys
    assert len({*keys, *(scene.key for scene in scenes(8)), *(each.idempotency_key for each in samples(100, 7))}) == (
        2 * len(keys) + 100
    )


def test_only_those_that_are_to_be_parked_need_the_service_that_is_down() -> None:
    for scene in scenes(7):
        assert bool(scene.sample.payload["insurance"]) == (scene.expected.state == State.PARKED)
    # Three workflows have to meet it, or its circuit never opens.
    assert sum(scene.expected.state == State.PARKED for scene in scenes(7)) >= 3


def test_the_sandbox_knows_each_fault_and_a_scene_strikes_its_own_calls_only(tmp_path: Any) -> None:
    book = FaultBook(Store(tmp_path))
    book.add(OUTAGE)
    for scene in scenes(7):
        for fault in scene.faults:
            book.add(dict(fault))
            assert fault["idempotency_key"] == str(scene.key)
            assert fault["count"]  # or a retry at the console would meet it again


@pytest.mark.django_db
def test_each_scene_is_named_once_with_its_page() -> None:
    played = scenes(7)
    found = {scene.key: _Result(number) for number, scene in enumerate(played, 1)}
    Service.objects.create(name="visits")
    seen = dict(sights(played, found))  # type: ignore[arg-type]
    assert set(seen) > {scene.about for scene in played}
    assert len(set(seen.values())) == len(seen)
    unclear: Scene = played[0]
    assert seen[unclear.about] == "/admin/workflows/workflow/1/change/"
    assert seen["Parked: the insurance service is down"] == "/admin/workflows/service/insurance/change/"
    assert seen["The story of the visits service, which was down"] == "/admin/workflows/service/visits/change/"


class _Result:
    def __init__(self, id: int) -> None:
        self.id = id
