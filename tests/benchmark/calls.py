"""Function calls of a claim and of a submission, and exchanges with the server: counts, the same on every machine."""

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
SUBMISSIONS = {
    "entered": "a submission",
    "entered_with_keys": "one with 2 search keys",
    "entered_with_secrets": "one with 2 search keys and 2 secrets",
}
# So many claims or submissions come first, for statements are prepared in them. Of the others the middle one counts.
PREPARING, COUNTED = 20, 21


def report(setting: Setting) -> Report:
    database, rounds = setting.database, {}
    with Inside(database.url, "tests.benchmark.worker:calls") as calls:
        for name in track(list(CLAIMS), "calls"):
            database.begin_anew()
            database.submit(name, PREPARING + 2 * COUNTED)
            rounds[name] = calls()
    with Inside(database.url, "tests.benchmark.submission:calls") as submissions:
        rounds |= {name: submissions(setting.key, name) for name in track(list(SUBMISSIONS), "calls")}
    whats = {name: f"a claim of {what}" for name, what in CLAIMS.items()} | SUBMISSIONS
    found = [
        Finding("calls", f"{whats[name]}: {unit}", counts, unit)
        for name, costs in rounds.items()
        for unit, counts in costs.items()
    ]
    versions = f"Python {sys.version.partition(' ')[0]}, Django {django.__version__}, psycopg {psycopg.__version__}"
    note = f"calls as cProfile counts them, with {versions}: compare counts of the same versions"
    title = "what a worker does for one workflow, from its claim to its COMMIT, and the intake for one submission"
    return Report(title, found, rounds, notes=[note])
