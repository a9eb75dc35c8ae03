"""The inner parts of libraries that we rely on, though no library promises them. An upgrade may take one away: then the
module named here has to change.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import psycopg
import pytest
from django.db import connection
from django.utils.log import log_response
from gunicorn.asgi.parser import CallbackRequest
from gunicorn.asgi.protocol import ASGIProtocol, BodyReceiver
from gunicorn.workers.gasgi import ASGIWorker
from gunicorn.workers.gthread import ThreadWorker
from psycopg import errors, generators
from psycopg.adapt import Transformer


def missing(part: object, *names: str) -> list[str]:
    owner = part if isinstance(part, type) else type(part)
    return [f"{owner.__name__}.{name}" for name in names if not hasattr(part, name)]


def test_gunicorn_has_the_parts_that_config_server_uses() -> None:
    worker = SimpleNamespace(cfg=SimpleNamespace(), log=None, asgi=None)
    protocol = ASGIProtocol(worker)
    receiver = BodyReceiver(CallbackRequest(), protocol)
    gone = missing(protocol, "worker", "transport", "log", "_closed", "_body_receiver")
    gone += missing(ASGIProtocol, "_arm_keepalive_timer", "_keepalive_timeout", "_close_transport", "_will_close")
    gone += missing(ASGIProtocol, "_send_error_response", "pause_writing", "resume_writing", "_handle_connection")
    gone += missing(protocol, "_callback_parser", "_max_buffer_size", "_keepalive", "_current_request")
    gone += missing(ASGIProtocol, "_feed_callback_parser", "_resume_reading", "_is_buffer_full")
    gone += missing(receiver, "_complete", "signal_disconnect", "buffered", "request")
    gone += missing(CallbackRequest(), "chunked", "content_length", "must_close")  # of gunicorn.conf.py
    gone += missing(ASGIWorker, "_serve", "_shutdown", "init_signals", "handle_exit_signal")
    gone += missing(ThreadWorker, "finish_request", "murder_pending", "handle_error")
    assert not gone, f"config/server.py needs what gunicorn has no longer: {gone}"
    made = "gunicorn.workers.gasgi makes its connections of something else than ASGIProtocol"
    assert "ASGIProtocol(self)" in inspect.getsource(ASGIWorker._serve), made
    assert "self.loop.create_server(" in inspect.getsource(ASGIWorker._serve), "gunicorn listens in another way"
    assert "for server in self.servers" in inspect.getsource(ASGIWorker._shutdown)
    threads = inspect.getsource(ThreadWorker)
    assert "conn.close(graceful=True)" in threads, "gunicorn's worker of threads closes in another way"
    assert "self.poller.register(" in threads
    assert "self.nr_conns -= 1" in threads


@pytest.mark.django_db
def test_psycopg_has_the_parts_that_workflows_postgres_wire_uses() -> None:
    connection.ensure_connection()
    gone = missing(Transformer, "dump_sequence", "types", "formats", "set_pgresult", "load_rows")
    gone += missing(connection.connection, "_autocommit", "set_autocommit", "commit", "adapters")
    gone += [name for name in ("send", "fetch_many") if not hasattr(generators, name)]
    gone += [name for name in ("error_from_result", "_WaitTimeout") if not hasattr(errors, name)]
    gone += [] if "timeout" in inspect.signature(psycopg.Connection.wait).parameters else ["Connection.wait(timeout=)"]
    assert not gone, f"workflows/postgres/wire.py needs what psycopg has no longer: {gone}"
    waited: list[object] = []
    raw = psycopg.connect(connection.connection.info.dsn, password=connection.connection.info.password)
    with raw:
        raw.wait = lambda *args, **kwargs: waited.append(args) or psycopg.Connection.wait(raw, *args, **kwargs)  # type: ignore[method-assign,func-returns-value]
        raw.execute("SELECT 1")
    assert waited, "psycopg sends past Connection.wait: workflows/postgres/wire.py would not hear of it"
    setter = inspect.getsource(psycopg.Connection._set_autocommit)
    assert "self.set_autocommit(value)" in setter, "psycopg sets autocommit in another way: workflows/postgres/wire.py"


@pytest.mark.django_db
def test_django_has_the_parts_that_workflows_postgres_django_connection_uses() -> None:
    gone = missing(connection, "savepoint_ids", "savepoint_state", "needs_rollback", "closed_in_transaction")
    gone += missing(connection, "execute_wrappers", "wrap_database_errors", "run_on_commit", "health_check_done")
    assert not gone, f"workflows/postgres (django_connection, round_trips) needs what Django's has no longer: {gone}"
    looked_at = inspect.getsource(log_response)
    assert "_has_been_logged" in looked_at, "workflows/api/problems.py: Django logs the paths of refused requests"
