import pytest
from django.db import connection, connections

from tests import postgres

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "attempt_log"]), pytest.mark.slow]


def test_the_attempt_log_is_another_connection_to_the_same_database() -> None:
    pids = set()
    for alias in ["default", "attempt_log"]:
        with connections[alias].cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid(), current_database()")
            pids.add(cursor.fetchone())
    assert len({pid for pid, _ in pids}) == 2
    assert len({name for _, name in pids}) == 1


@pytest.mark.alone
def test_a_closed_connection_opens_again_after_a_restart(restart_postgres: postgres.Restart) -> None:
    connection.ensure_connection()
    restart_postgres()
    assert not connection.is_usable()
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,)
