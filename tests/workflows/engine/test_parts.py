"""A feature's part at a worker fails by itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests import engine
from tests.engine import define, submit, worker
from workflows.engine.extension import Feature, Part
from workflows.models import Workflow

pytestmark = engine.ENGINE


class Ending(Feature, Part):
    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.ended = error, False

    def at_worker(self) -> Part:
        return self

    def end(self) -> None:
        self.ended = True
        if self.error:
            raise self.error


def nothing(*, workflow: Workflow, context: Any) -> None: ...


def test_a_part_that_fails_at_the_end_of_an_attempt_keeps_no_other_from_it_and_nothing_is_decided() -> None:
    define([nothing])
    workflow, other = submit(), Ending()
    with pytest.raises(ZeroDivisionError):
        worker(features=[Ending(ZeroDivisionError()), other]).process_next()
    assert other.ended
    workflow.refresh_from_db()
    assert workflow.status == "PENDING"
