"""What the figures were measured on: without that they cannot be compared with others."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import psutil

from tests.benchmark.database import Database

# Settings of PostgreSQL that a rate depends on.
SETTINGS = (
    *("fsync", "synchronous_commit", "full_page_writes"),
    *("shared_buffers", "max_wal_size", "max_connections", "wal_level"),
)


def described(database: Database) -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "postgresql": database.ask("SHOW server_version"),
        "postgresql_settings": {name: database.ask(f"SHOW {name}") for name in SETTINGS},
        "packages": dict(sorted((each.name, each.version) for each in distributions())),
        "load_before": load(),
    }


def load() -> float:
    """Of the last minute: how many processes wanted to run. Above the number of cores they have shared them."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    """Only Linux tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", cpuinfo.read_text()) if cpuinfo.exists() else None
    return found[1] if found else platform.processor()
