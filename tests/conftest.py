import gc
import os
import random
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections
from django.test import TransactionTestCase

from config.logs import LINE, Formatter
from tests import alone, postgres, roles
from tests.browser import started

# All of these are `slow`: they start processes, servers and browsers, race, or walk through all pages; or they take
# their time for what few changes touch. `.ci/run` runs one of each kind.
SLOW = {
    Path(__file__).parent / path
    for path in (
        *("acceptance", "concurrency", "config/embedded", "console", "scenarios", "staff"),
        *("workflows/admin/walk", "workflows/features/doctor", "workflows/testing", "onboarding/test_reconcile.py"),
        *("workflows/admin/test_indexes.py", "workflows/admin/test_statements.py"),
        *("workflows/features/outbox/test_kafka.py", "workflows/features/queues/test_kafka.py"),
        *("workflows/intake/test_contended_keys.py", "workflows/model"),
    )
}
NOT_SLOW = "not slow"  # as `make test` chooses them

was_running = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="What the faults' randomness starts from (or FAULTS_SEED).")
    parser.addoption("--roles", action="store_true", help="Run workers and requests with their roles (tests/roles.py).")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.seed is None:  # the processes of pytest-xdist get the options of the one that starts them
        config.option.seed = int(os.environ.get("FAULTS_SEED") or random.randrange(1, 10**6))
    TransactionTestCase._fixture_teardown = postgres.empty_tables
    TransactionTestCase._should_reload_connections = postgres.renew_sessions


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, the same for all tests of the process."""
    with started() as chromium:
        yield chromium


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed of the faults: {config.option.seed} (repeat with --seed)"


def pytest_sessionstart(session: pytest.Session) -> None:
    server = postgres.embedded_server()
    session.config.stash[was_running] = server is None or server.pid() is not None


@pytest.hookimpl(trylast=True)  # when the processes of pytest-xdist have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the embedded server if it was this session that started it, and not the one that started this process."""
    server = postgres.embedded_server()
    if server is None or session.config.stash.get(was_running, True) or hasattr(session.config, "workerinput"):
        return
    postgres.stop_if_unused(server)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Each process reads all tests: those that it leaves out anyway take a fifth of that time."""
    return (config.option.markexpr == NOT_SLOW and collection_path in SLOW) or None


@pytest.hookimpl(tryfirst=True)  # before the tests are chosen by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not SLOW.isdisjoint((item.path, *item.path.parents)):
            item.add_marker(pytest.mark.slow)
    items.sort(key=alone.is_alone)


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests and modules that live to the end: no collection need look at them again


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with alone.turn_of(item):
        return (yield)


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_blocker: Any) -> None:
    """A database of this process's own, whatever else runs tests on the server; a copy: the migrations take seconds."""
    with django_db_blocker.unblock():
        connection.settings_dict["TEST"] |= {"NAME": postgres.named(os.getpid()), "TEMPLATE": postgres.template()}


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, request: pytest.FixtureRequest, django_db_blocker: Any) -> Iterator[None]:
    """The database can be dropped afterwards: no session is left open in it, here or by another process."""
    if request.config.option.roles:
        with django_db_blocker.unblock():
            roles.run_as_roles()
    yield
    connections.close_all()
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
        cursor.execute(ended, [connection.settings_dict["NAME"]])


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Its text is what our own handler writes."""
    caplog.handler.setFormatter(Formatter(LINE))
    return caplog


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What a test's randomness starts from: with the same seed it does the same, as far as processes allow."""
    return request.config.option.seed


@pytest.fixture
def restart_postgres(request: pytest.FixtureRequest) -> postgres.Restart:
    """What restarts PostgreSQL at once, as a crash would. Skips where nobody said how."""
    assert alone.is_alone(request.node), "the tests that run at the same time would lose their connections"
    if reason := postgres.why_no_restart():
        pytest.skip(reason)
    return postgres.restart_postgres
