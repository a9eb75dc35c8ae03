"""How many function calls a claim and a submission take: no machine changes that, but versions of libraries may."""

from __future__ import annotations

import sys
from importlib.metadata import version

import pytest
from django.conf import settings

from tests.benchmark.calls import CLAIMS, COUNTED, PREPARING, SUBMISSIONS
from tests.benchmark.database import connected, manage
from tests.benchmark.inside import Inside
from tests.servers import database_url

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"])

# By type of tests/benchmark/definitions.py: calls and exchanges. If a change lowers a count, lower it here.
KNOWN = {"one": (528, 3), "plain": (1_288, 3), "no_ops": (3_298, 26)}
OF_A_SUBMISSION = {"entered": 1_022, "entered_with_keys": 1_189, "entered_with_secrets": 1_251}
MAY_GROW = 1.05
# Characters of the conditions (CHECK) of the tables that each call writes: PostgreSQL parses them for each statement.
CONDITIONS = {"workflows_effect": 191, "workflows_workflow": 354}
PYTHON = (3, 11)  # comprehensions are no calls from 3.12 on
PINS = (settings.BASE_DIR / "constraints.txt").read_text().lower().split()
IS_COUNTED_ALIKE = sys.version_info[:2] == PYTHON and all(
    f"{package}=={version(package)}" in PINS for package in ("django", "psycopg", "pydantic")
)


of_known_versions = pytest.mark.skipif(
    not IS_COUNTED_ALIKE, reason="other versions than those of constraints.txt, or another Python"
)


@of_known_versions
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_takes_no_more_function_calls_than_it_did(name: str) -> None:
    with connected(database_url()) as database:
        database.submit(name, PREPARING + 2 * COUNTED)
        with Inside(database.url, "tests.benchmark.worker:calls") as calls:
            counted = calls()
    most_calls, most_exchanges = KNOWN[name]
    assert min(counted["calls"]) <= most_calls * MAY_GROW
    assert min(counted["exchanges"]) <= most_exchanges


@of_known_versions
def test_a_submission_takes_no_more_function_calls_than_it_did() -> None:
    api_key = manage(database_url(), "createapikey", "calls").split()[-1]
    with Inside(database_url(), "tests.benchmark.submission:calls") as calls:
        counted = {name: min(calls(api_key, name)["calls"]) for name in SUBMISSIONS}
    assert not {name: made for name, made in counted.items() if made > OF_A_SUBMISSION[name] * MAY_GROW}


def test_the_tables_that_each_call_writes_have_few_conditions() -> None:
    with connected(database_url()) as database:
        written = """SELECT sum(length(pg_get_constraintdef(oid)))::int FROM pg_constraint
                      WHERE contype = 'c' AND conrelid = %s::regclass"""
        assert {table: database.ask(written, table) for table in CONDITIONS} == CONDITIONS
