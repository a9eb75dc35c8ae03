"""The image, as far as it can be had without a container engine: the Dockerfile's steps, run in an empty folder.

Then each service of compose.yaml is started from there, as an account that owns nothing, with its health check.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml

from tests.processes import until
from tests.sandbox_process import SandboxProcess
from tests.servers import ROOT, Proxy, database_url
from workflows.ingress import api_keys

pytestmark = pytest.mark.django_db(transaction=True)

NOBODY = 65534
PLACE = "/opt/onramp"


def _instructions() -> Iterator[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        yield name, rest


def _copy(names: list[str], folder: Path) -> None:
    """COPY, from what .dockerignore leaves: everything is ignored but what a line with `!` names."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    context = [line[1:] for line in lines if line.startswith("!")]
    for name in context if names == ["."] else names:
        assert name in context, name
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy(ROOT / name, folder / name)


def _makes_environments(python: str) -> bool:
    sees = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))"
    done = subprocess.run(["env", python, "-c", sees], capture_output=True, check=False)
    return done.returncode == 0


class Image:
    """The folder that the Dockerfile's last stage has, and the environment that a process in it finds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # The system's Python, which the other account may run, too; where it can make no virtual environment, ours.
        python = next(each for each in ("/usr/bin/python3", sys.executable) if _makes_environments(each))
        (folder / "bin").mkdir()
        (folder / "bin" / "python").symlink_to(python)
        self.environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "LANG": "C.UTF-8"}
        # How this machine's pip finds packages; the image's has its own.
        self.building = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        for name, rest in _instructions():
            rest = rest.replace(PLACE, str(folder))
            if name in ("ARG", "ENV"):
                pairs = (pair.partition("=") for pair in shlex.split(rest))
                values = {key: value.replace("$PATH", self.environment["PATH"]) for key, _, value in pairs}
                (self.building if name == "ARG" else self.environment).update(values)
            elif name == "COPY" and not rest.startswith("--from"):
                _copy(rest.split()[:-1], folder)
            elif name == "RUN" and not rest.startswith("useradd"):
                subprocess.run(["bash", "-ec", rest], cwd=folder, env=self.building | self.environment, check=True)

    def start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment | environment, **other)  # type: ignore[call-overload]

    def run(self, command: list[str], environment: dict[str, str]) -> int:
        return self.start(command, environment).wait(timeout=60)


@pytest.fixture
def image() -> Iterator[Image]:
    folder = Path(tempfile.mkdtemp(prefix="onramp-image-"))
    folder.chmod(0o755)
    try:
        yield Image(folder)
    finally:
        shutil.rmtree(folder)


def test_each_service_of_compose_runs_from_what_the_dockerfile_builds(image: Image, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        intake, console = one.getsockname()[1], other.getsockname()[1]
    text = (ROOT / "compose.yaml").read_text().replace(":8000", f":{intake}").replace(":8001", f":{console}")
    compose: dict[str, Any] = yaml.safe_load(text)
    services = compose["services"]
    ours = {name: services[name] for name in ("intake", "console", "worker")}
    assert not [name for name in ("tests", ".git", ".env", "docs") if (image.folder / name).exists()]
    if os.getuid() == 0:
        assert image.run(["touch", str(image.folder / "manage.py")], {}) != 0  # it owns nothing
    authorized = {"Authorization": f"Bearer {api_keys.create('Website')}"}
    key = str(uuid4())
    with ExitStack() as stack:
        sandbox = SandboxProcess(tmp_path / "sandbox")
        stack.callback(sandbox.kill)
        proxy = stack.enter_context(Proxy())
        settings = {name: str(value) for name, value in compose["x-onramp"]["environment"].items()} | {
            "DATABASE_URL": database_url(port=proxy.port),
            "SECRET_KEY": "s" * 60,
            "SEARCH_KEYS": "k" * 60,
            "DATA_KEYS": "d" * 60,
            "ALLOWED_HOSTS": "onramp.example.com",
            "SERVICES_URL": sandbox.url,
            "WORKER_HEALTH_FILE": str(Path(tempfile.gettempdir()) / f"{uuid4()}.health"),
        }
        assert image.run(services["migrate"]["command"], settings) == 0
        for service in ours.values():
            process = image.start(service["command"], settings)
            stack.callback(process.wait, 60)
            stack.callback(process.send_signal, signal.SIGTERM)
        for name, service in ours.items():
            kind, *check = service["healthcheck"]["test"]
            assert kind == "CMD"
            assert until(lambda check=check: image.run(check, settings) == 0, seconds=60), name  # type: ignore[misc]
        sent = httpx.post(
            f"http://127.0.0.1:{intake}/v1/submissions",
            headers={**authorized, "Idempotency-Key": key, "Content-Type": "application/json"},
            content=(ROOT / "docs" / "examples" / "uninsured.json").read_bytes(),
        )
        assert sent.status_code == 202, sent.text
        # As behind the proxy of compose.
        proxied = {**authorized, "Host": "onramp.example.com", "X-Forwarded-Proto": "https"}
        address = f"http://127.0.0.1:{console}/v1/submissions/{key}"
        assert until(lambda: httpx.get(address, headers=proxied).json()["status"] == "COMPLETE", seconds=60)
