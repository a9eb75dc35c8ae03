"""Submissions for the tests of the intake, and how they are entered by its batches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

from pydantic import BaseModel

from onboarding.workflow import SEARCH_KEYS
from workflows.definition import WorkflowDefinition
from workflows.intake.batching import Batches
from workflows.intake.connection import Link, Rows
from workflows.intake.submissions import Entry, Submission
from workflows.models import Workflow
from workflows.postgres.jsonb import parse

T = TypeVar("T")


def step(*, workflow: Workflow, context: Any) -> None:
    pass


DEFINITION = WorkflowDefinition(
    name="test",
    steps=[step],
    context_class=BaseModel,
    queue="pool",
    priority=3,
    linking_id="account",
    search_keys=SEARCH_KEYS,
    expires_after=timedelta(hours=1),
)


def submission(value: Any = None, *, key: UUID | None = None, client: str = "shop") -> Submission:
    return Submission(key or uuid4(), parse(json.dumps(value or {}).encode()), client)


def with_batches(use: Callable[[Batches], Awaitable[T]], **limits: Any) -> T:
    """What `use` returns, run in a loop of its own with batches of its own."""

    async def run() -> T:
        batches = Batches(DEFINITION, **limits)
        try:
            return await use(batches)
        finally:
            await batches.close()

    return asyncio.run(run())


async def entered(batches: Batches, sent: Sequence[Submission]) -> list[Any]:
    """What came of submissions that arrive at the same moment: an entry of each, or its error."""
    return await asyncio.gather(*map(batches.enter, sent), return_exceptions=True)


def enter_together(*sent: Submission, **limits: Any) -> list[Any]:
    return with_batches(lambda batches: entered(batches, sent), **limits)


class Counted(Link):
    """A connection that counts its statements."""

    statements = 0

    async def fetch(self, statement: str, parameters: Any) -> Rows:
        self.statements += 1
        return await super().fetch(statement, parameters)


def statements_for(*sent: Submission) -> tuple[list[Any], int]:
    """What came of submissions that arrive together, and how many statements that took."""

    async def use(batches: Batches) -> tuple[list[Any], int]:
        batches._link = counted = Counted()
        return await asyncio.wait_for(entered(batches, sent), 30), counted.statements

    return with_batches(use, seconds=60)


def new(entry: Any) -> bool:
    """Whether that is the answer to a submission that was not there before."""
    return isinstance(entry, Entry) and not entry.replayed and (entry.status, entry.state) == ("PENDING", "queued")
