"""No line of the log can be forged, and none quotes what an exception says."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import warnings

import pytest
from django.test import Client

from config import logs
from config.logs import JsonFormatter

FORGED = "2026-11-27 01:00:00,000 INFO    1 workflows: paid"


def fail() -> None:
    raise ValueError("canary-51")


def test_a_line_that_is_forged_is_seen_to_be_part_of_another(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """By a path; by the end of a line that only some programs know; and by what would erase a terminal."""
    for end in ("%0A", "%0D%0A", "%C2%85", "%E2%80%A8", "%1b[2K%0d"):
        client.get(f"/nothing{end}{FORGED}")
    lines = caplog.text.splitlines()
    assert [FORGED in line for line in lines] == [True] * 5
    assert not any(line.startswith(FORGED) for line in lines)
    assert caplog.text.replace("\n", "").isprintable()


@pytest.mark.parametrize("formatter", [logs.Formatter(logs.LINE), JsonFormatter()], ids=["line", "json"])
def test_no_line_has_the_message_of_an_exception(
    formatter: logging.Formatter, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it comes there: what libraries log, what Python prints, what a loop finds, what another handler keeps."""
    caplog.handler.setFormatter(formatter)
    for each in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, each, getattr(sys, each))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    for each in ("_srcfile", "logThreads", "logMultiprocessing"):
        monkeypatch.setattr(logging, each, getattr(logging, each))
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    logs.take_over()
    library = logging.getLogger("library")
    try:
        fail()
    except ValueError as error:
        library.exception(error)
        library.error("It failed: %s", error)
        library.error("It failed: %(why)s", {"why": error})
        record = library.makeRecord("library", logging.ERROR, __file__, 1, "Kept", (), sys.exc_info())
        record.exc_text = "ValueError: canary-51"
        library.handle(record)
        sys.excepthook(type(error), error, error.__traceback__)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    warnings.showwarning("canary-51", UserWarning, __file__, 1)

    async def forget() -> None:
        asyncio.get_running_loop().call_soon(lambda who: fail(), "canary-51")
        await asyncio.sleep(0)

    asyncio.run(forget())
    assert "canary" not in caplog.text
    assert len(caplog.records) == 8
    assert caplog.text.count("ValueError") >= 6
    assert "UserWarning at " in caplog.text
    if isinstance(formatter, JsonFormatter):
        assert json.loads(caplog.text.splitlines()[0])["message"] == "ValueError"
