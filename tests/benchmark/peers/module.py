"""A peer's module, in the peers' virtual environment, and what its jobs are given."""

from __future__ import annotations

import importlib
import json
import os
from functools import cache
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "net_new.json"


@cache
def peer_module(name: str) -> Any:
    """With Django set up, which some need before they are imported."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.benchmark.peers.settings")
    import django

    django.setup()
    return importlib.import_module(f"tests.benchmark.peers.{name}")


@cache
def payload() -> Any:
    """A real submission."""
    return json.loads(SAMPLE.read_text())
