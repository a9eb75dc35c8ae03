"""Function calls and exchanges with the server of one claim: counts, the same on every machine."""

from __future__ import annotations

import sys

import django
import psycopg

from tests.benchmark import STEPS
from tests.benchmark.findings import Finding, Report, track
from tests.benchmark.inside import Inside
from tests.benchmark.setting import Setting

# The types of `definitions.py`, and what they are called.
CLAIMS = {"one": "1 plain step", "plain": f"{STEPS} plain steps", "no_ops": f"{STEPS} recorded steps"}
# So many claims come first, for statements are prepared in them. Of the others the middle one counts.
PREPARING, COUNTED = 20, 21


def report(setting: Setting) -> Report:
    database, rounds = setting.database, {}
    with Inside(database.url, "tests.benchmark.worker:calls") as calls:
        for name in track(list(CLAIMS), "calls"):
            database.begin_anew()
            database.submit(name, PREPARING + 2 * COUNTED)
            rounds[name] = calls()
    found = [
        Finding("calls", f"a claim of {CLAIMS[name]}: {unit}", counts, unit)
        for name, costs in rounds.items()
        for unit, counts in costs.items()
    ]
    versions = f"Python {sys.version.partition(' ')[0]}, Django {django.__version__}, psycopg {psycopg.__version__}"
    note = f"calls as cProfile counts them, with {versions}: compare counts of the same versions"
    return Report("what a worker does for one workflow, from its claim to its COMMIT", found, rounds, notes=[note])
