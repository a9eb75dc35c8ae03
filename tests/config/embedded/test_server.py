"""The embedded server, for real, in folders of its own: the one that the suite runs on is left alone."""

import os
import signal
import subprocess
import time

import psycopg
import pytest

from config.embedded.server import Server
from tests.config.embedded.servers import ask, elsewhere, mode
from tests.postgres import connect, other_clients


def kill_postmaster(server: Server) -> int:
    pid = server.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while server.pid() is not None:
        time.sleep(0.01)
    return pid


def test_it_is_private_durable_and_on_a_socket_only(server: Server) -> None:
    assert ask(server, "SHOW listen_addresses") == ""
    assert ask(server, "SHOW fsync") == "on"
    assert ask(server, "SHOW server_encoding") == "UTF8"
    assert ask(server, "SHOW timezone") == "UTC"
    assert ask(server, "SHOW max_connections") == "200"
    assert mode(server.cluster) == 0o700
    assert mode(server.data) == 0o700


def test_what_it_is_started_with_holds_after_a_restart_until_it_is_stopped(server: Server) -> None:
    server.stop()
    server.start(fsync="off")
    server.restart("immediate")
    assert ask(server, "SHOW fsync") == "off"
    server.stop()
    server.start()
    assert ask(server, "SHOW fsync") == "on"


def test_of_many_that_start_it_at_once_one_does_also_after_an_initdb_that_was_killed(new_server: Server) -> None:
    unfinished = new_server.cluster / "data.new"
    unfinished.mkdir(parents=True)
    (unfinished / "PG_VERSION").write_text("18\n")
    starters = [elsewhere(new_server.home, "print(server.start())") for _ in range(6)]
    outputs = [starter.communicate(timeout=120) for starter in starters]
    assert sorted(stdout.strip() for stdout, _ in outputs) == ["False"] * 5 + ["True"], outputs


def test_its_data_survives_a_kill_and_a_pid_that_is_somebody_elses_by_now(server: Server) -> None:
    with connect(server) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS answer")
    owner = server.data.stat()
    pid = kill_postmaster(server)
    # What PostgreSQL itself would take for a running server: a live process of the same account.
    other = subprocess.Popen(["sleep", "60"], user=owner.st_uid, cwd="/")
    postmaster_pid = server.data / "postmaster.pid"
    postmaster_pid.write_text(postmaster_pid.read_text().replace(str(pid), str(other.pid), 1))
    try:
        assert server.pid() is None
        assert server.start() is True
    finally:
        other.kill()
        other.wait()
    assert ask(server, "SELECT answer FROM kept") == 7


def test_it_waits_for_the_orphans_of_a_killed_postmaster(server: Server) -> None:
    # A backend in the middle of a statement does not notice; two postmasters on its data would ruin it.
    query = "SELECT count(*) FROM generate_series(1, 8000000)"
    busy = elsewhere(server.home, f"from tests.postgres import connect; connect(server).execute({query!r})")
    while other_clients(server) == 0:
        time.sleep(0.01)
    kill_postmaster(server)
    assert server.start() is True
    busy.communicate(timeout=30)


def test_an_immediate_restart_breaks_connections_and_keeps_the_address(server: Server) -> None:
    before = server.socket_folder()
    with connect(server) as connection:
        server.restart("immediate")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert server.socket_folder() == before
    assert ask(server, "SELECT 1") == 1


def test_only_the_first_connection_of_a_process_starts_it(server: Server) -> None:
    """A worker, or a fork of it, that reconnects while somebody restarts the server must not start another."""
    code = """if True:
        import os, django
        django.setup()
        from django.db import OperationalError, connection
        connection.settings_dict["HOST"] = str(server.home)
        connection.ensure_connection()
        connection.close()
        server.stop()
        child = os.fork()
        try:
            connection.ensure_connection()
        except OperationalError:
            os.write(1, b"refused ")
            os._exit(0) if child == 0 else os.waitpid(child, 0)
    """
    stdout, stderr = elsewhere(server.home, code).communicate(timeout=60)
    assert stdout.split() == ["refused", "refused"], stderr
    assert server.pid() is None
