"""The log lines of an attempt, and what its steps call, have the name of the request that the workflow came with."""

from __future__ import annotations

import json
import logging

import pytest

from config.logs import JsonFormatter
from tests.engine import ENGINE, Context, define, submit, worker
from workflows import request_ids
from workflows.models import Workflow

pytestmark = ENGINE


def test_each_attempt_has_the_name_of_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    seen = []

    def look(*, workflow: Workflow, context: Context) -> None:
        seen.append(request_ids.current.get())

    define([look])
    names = [submit(given_request_id="shop-7").request_id, submit().request_id]
    caplog.set_level(logging.INFO, "workflows")
    caplog.handler.setFormatter(JsonFormatter())
    worker().run(drain=True)
    assert names[0] == "shop-7"
    assert seen == names
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    assert [line["request_id"] for line in lines if "ended as" in line["message"]] == names
    assert request_ids.current.get() == ""
