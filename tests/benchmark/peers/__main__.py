"""python -m tests.benchmark.peers PEER COMMAND [NUMBER...]: in the peers' virtual environment.

`store COUNT MS` stores so many jobs, one every so many milliseconds, in the mean. Other commands are functions of the
peer's module.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import time
from pathlib import Path

import django

SAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "net_new.json"


def main(name: str, command: str, *numbers: str) -> None:
    django.setup()  # which some need before they are imported
    module = importlib.import_module(f"tests.benchmark.peers.{name}")
    if command == "store":
        count, every_ms = map(int, numbers)
        payload = json.loads(SAMPLE.read_text())
        for _ in range(count):
            module.enqueue(payload)
            time.sleep(every_ms / 1000 * random.uniform(0.5, 1.5))
    else:
        getattr(module, command)()


if __name__ == "__main__":
    main(*sys.argv[1:])
