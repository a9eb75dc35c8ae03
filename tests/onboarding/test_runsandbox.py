from __future__ import annotations

import re
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest
from django.core.management import CommandError, call_command

from tests.sandbox_process import SandboxProcess


def refused(told: str, *arguments: str) -> None:
    with pytest.raises(CommandError, match=re.escape(told)):
        call_command("runsandbox", *arguments)


class Runsandbox(SandboxProcess):
    command = ("manage.py", "runsandbox")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_when_it_is_told_to(tmp_path: Path, number: signal.Signals) -> None:
    own_sandbox = Runsandbox(tmp_path / "state", key_ttl=60)
    own_sandbox.fault("payments", None, "timeout_after")
    stuck = threading.Thread(target=_ask_for_ever, args=[own_sandbox.url])
    stuck.start()
    while not own_sandbox.http.get("/_faults").json()["faults"][0]["fired"]:
        time.sleep(0.01)
    assert own_sandbox.kill(number) == 0
    stuck.join()


def _ask_for_ever(url: str) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/payments/charges", timeout=30, trust_env=False)


def test_a_port_that_is_taken_is_a_clear_message(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(f"Cannot listen on 127.0.0.1:{port}: the port is taken.", "--port", port, "--state", str(tmp_path))
