"""A real sandbox process, for tests that call it."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from onboarding.sandbox.server import Sandbox, SandboxServer, serve_until

PROJECT = Path(__file__).resolve().parent.parent


class SandboxProcess:
    """A sandbox on a free port; `start` again after `kill` keeps port and state.

    It forgets idempotency keys after `key_ttl` seconds (None: never). It is `manage.py runsandbox` without Django,
    which takes most of the time to start.
    """

    command = ("-m", "tests.sandbox_process")

    def __init__(self, state: Path, *, key_ttl: float | None = None) -> None:
        self.state = state
        self.key_ttl = key_ttl
        self.port = 0
        self.start()

    def start(self) -> None:
        arguments = ["--port", str(self.port), "--state", str(self.state)]
        arguments += ["--key-ttl", str(self.key_ttl)] if self.key_ttl is not None else []
        self.process = subprocess.Popen(
            [sys.executable, *self.command, *arguments],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("Sandbox ready at http://127.0.0.1:"), ready
        self._reach(int(ready.split(",")[0].rpartition(":")[2]))

    def _reach(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=10)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        self.http.close()
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(10)

    def services(self) -> dict[str, str]:
        """What belongs into settings.SERVICES."""
        names = ("accounts", "tokens", "profiles", "insurance", "visits", "payments", "programs", "messages")
        return {name: f"{self.url}/{name}" for name in names}

    def effects(self, **filters: str) -> list[dict[str, str]]:
        effects: list[dict[str, str]] = self.http.get("/_effects", params=filters).raise_for_status().json()["effects"]
        return effects

    def calls(self, service: str, **filters: str) -> list[dict[str, Any]]:
        """How many calls a service got in each second in which it got any."""
        query = {"service": service, **filters}
        calls: list[dict[str, Any]] = self.http.get("/_calls", params=query).raise_for_status().json()["calls"]
        return calls

    def answer_to(self, service: str, idempotency_key: str) -> dict[str, Any] | None:
        """What the change that was performed under a key was answered; None if none was."""
        answer = self.http.get(f"/_answers/{service}/{quote(idempotency_key, safe='')}")
        if answer.status_code == 404:
            return None
        body: dict[str, Any] = answer.raise_for_status().json()["body"]
        return body

    def effects_of(self, workflow_key: str) -> list[tuple[str, str]]:
        """What was performed for one workflow: (service, operation), in order."""
        return [
            (effect["service"], effect["operation"])
            for effect in self.effects()
            if effect["idempotency_key"].startswith(f"{workflow_key}:")
        ]

    def fault(self, service: str, operation: str | None, kind: str, **more: Any) -> dict[str, Any]:
        asked = {"service": service, "operation": operation, "kind": kind, **more}
        fault: dict[str, Any] = self.http.post("/_faults", json=asked).raise_for_status().json()
        return fault

    def lift_fault(self, id: int) -> dict[str, Any]:
        """Take one fault out of force; with how often it has struck."""
        lifted: dict[str, Any] = self.http.delete(f"/_faults/{id}").raise_for_status().json()
        return lifted

    def clear_faults(self) -> None:
        self.http.delete("/_faults").raise_for_status()

    def account(self, **body: Any) -> dict[str, str]:
        """Make the account of an existing patient, or a linked one."""
        account: dict[str, str] = self.http.post("/_accounts", json=body).raise_for_status().json()
        return account


class SandboxThread(SandboxProcess):
    """The same server in a thread of this process: it starts at once, and cannot be killed."""

    def start(self) -> None:
        self.server = SandboxServer(("127.0.0.1", self.port), Sandbox(self.state, key_ttl=self.key_ttl))
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self._reach(self.server.server_address[1])

    def end(self) -> None:
        self.http.close()
        self.server.shutdown()
        self.server.server_close()
        self.server.sandbox.store.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, of in {"port": int, "state": Path, "key-ttl": float}.items():
        parser.add_argument(f"--{name}", type=of)
    options = parser.parse_args()
    server = SandboxServer(("127.0.0.1", options.port), Sandbox(options.state, key_ttl=options.key_ttl))
    sys.stdout.write(f"Sandbox ready at http://127.0.0.1:{server.server_port}, state in {options.state}.\n")
    sys.stdout.flush()
    serve_until(server, {signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
