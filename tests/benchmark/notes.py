"""What is said of the peers beside their figures: what each does and does not do, and which cannot be had."""

from __future__ import annotations

from tests.benchmark.peers import PEERS
from tests.benchmark.setting import Setting

OURS = (
    "ours: a transaction around the work, whose end decides; each attempt, its steps and its end are kept; a killed "
    "worker's row is held again at once; of a recorded step an INTENT is on disk before its call"
)


def notes_on_peers(setting: Setting) -> list[str]:
    if not setting.peers and not setting.missing:
        return []
    return [
        OURS,
        *(f"{each.name}: {each.peer.does} ({each.peer.docs})" for each in setting.peers),
        *(f"{name} is left out: {why} ({PEERS[name].docs})" for name, why in setting.missing.items()),
    ]
