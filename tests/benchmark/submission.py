"""Submissions through the intake's application, one by one, without a socket (`inside.py`)."""

from __future__ import annotations

import asyncio
import cProfile
from typing import Any
from uuid import uuid4

from tests.benchmark.calls import COUNTED, PREPARING
from tests.benchmark.database import PAYLOAD
from workflows.api.asgi import SUBMISSIONS, Intake
from workflows.definition import definitions

BODY = PAYLOAD.read_bytes()


def calls(api_key: str, workflow_type: str) -> dict[str, list[int]]:
    """The function calls of each of so many submissions, from the request to the answer after the commit."""
    intake, loop = Intake(definitions()[workflow_type]), asyncio.new_event_loop()
    made = []
    for _ in range(PREPARING + COUNTED):
        with cProfile.Profile() as profile:
            loop.run_until_complete(_submit(intake, api_key))
        made.append(sum(entry.callcount for entry in profile.getstats()) - 1)
    return {"calls": made[PREPARING:]}


async def _submit(intake: Intake, api_key: str) -> None:
    headers = {
        "authorization": f"Bearer {api_key}",
        "content-type": "application/json",
        "content-length": str(len(BODY)),
        "idempotency-key": str(uuid4()),
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": SUBMISSIONS,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    answers: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        answers.append(message)

    await intake(scope, receive, send)
    assert answers[0]["status"] == 202, answers
