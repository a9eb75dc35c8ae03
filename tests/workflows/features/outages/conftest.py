from __future__ import annotations

from datetime import timedelta

import pytest

from tests.workflows.features.outages.services import Downstream


@pytest.fixture
def programs() -> Downstream:
    return Downstream()


@pytest.fixture
def a_vote_for_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.features.outages.calls.VOTE_EVERY", 0.0)


@pytest.fixture
def cohorts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.features.outages.parking.PACE", timedelta(0))
    monkeypatch.setattr("workflows.features.outages.parking.JUST_DUE", timedelta(0))
