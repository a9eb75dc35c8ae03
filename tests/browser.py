"""Chromium, for the tests that look at pages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def started() -> Iterator[Any]:
    """Chromium; the test is skipped where there is none. Playwright can be started once only in a process."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install -e '.[dev]'"
    )
    if CHROMIUM is None:
        pytest.skip("No Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as started, _database_beside_its_event_loop():
        # Without a sandbox of its own: CI runs it as root.
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@contextmanager
def _database_beside_its_event_loop() -> Iterator[None]:
    """Playwright's event loop is in this thread, and Django would not ask the database beside one."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    yield
    connections.close_all()  # those that were opened beside it: when it has ended, nothing leads to them any more
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]
