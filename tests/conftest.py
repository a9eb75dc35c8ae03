import os
import random

import pytest
from django.test import TransactionTestCase

from tests import postgres

was_running = pytest.StashKey[bool]()
seed_key = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="What the faults' randomness starts from (or FAULTS_SEED).")


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--seed") or os.environ.get("FAULTS_SEED")
    config.stash[seed_key] = int(given) if given else random.randrange(1, 10**6)
    TransactionTestCase._fixture_teardown = postgres.empty_tables


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed of the faults: {config.stash[seed_key]} (repeat with --seed)"


def pytest_sessionstart(session: pytest.Session) -> None:
    server = postgres.embedded_server()
    session.config.stash[was_running] = server is None or server.pid() is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the embedded server if it was this session that started it."""
    server = postgres.embedded_server()
    if server is not None and not session.config.stash.get(was_running, True):
        postgres.stop_if_unused(server)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What a test's randomness starts from: with the same seed it does the same, as far as processes allow."""
    return request.config.stash[seed_key]


@pytest.fixture
def restart_postgres() -> postgres.Restart:
    """What restarts PostgreSQL at once, as a crash would. Skips where nobody said how."""
    if reason := postgres.why_no_restart():
        pytest.skip(reason)
    return postgres.restart_postgres
