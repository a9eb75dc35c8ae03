import pytest

from tests import postgres

was_running = pytest.StashKey[bool]()


def pytest_sessionstart(session: pytest.Session) -> None:
    server = postgres.embedded_server()
    session.config.stash[was_running] = server is None or server.pid() is not None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the embedded server if it was this session that started it."""
    server = postgres.embedded_server()
    if server is not None and not session.config.stash.get(was_running, True):
        postgres.stop_if_unused(server)


@pytest.fixture
def restart_postgres() -> postgres.Restart:
    """What restarts PostgreSQL at once, as a crash would. Skips where nobody said how."""
    if reason := postgres.why_no_restart():
        pytest.skip(reason)
    return postgres.restart_postgres
