"""python -m tests.benchmark.peers PEER COMMAND [NUMBER...]: in the peers' virtual environment.

The commands are functions of the peer's module: `fill COUNT` stores jobs; `pace COUNT MS` one every so many
milliseconds, in the mean; and what its entry in `PEERS` names.
"""

from __future__ import annotations

import random
import sys
import time
from typing import Any

from tests.benchmark.peers.module import payload, peer_module


def pace(module: Any, count: int, every_ms: int) -> None:
    for _ in range(count):
        module.enqueue(payload())
        time.sleep(every_ms / 1000 * random.uniform(0.5, 1.5))


def main(name: str, command: str, *numbers: str) -> None:
    module = peer_module(name)
    if command == "pace":
        pace(module, *map(int, numbers))
    else:
        getattr(module, command)(*map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
