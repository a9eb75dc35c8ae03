import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.embedded.server import Server
from tests.config.embedded.servers import Prepare, a_folder_that_all_can_enter


@pytest.fixture(scope="package", autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    with a_folder_that_all_can_enter() as folder:
        yield folder


@pytest.fixture
def new_server(open_folder: Path) -> Iterator[Server]:
    """One without data: its first start runs initdb."""
    server = Server(open_folder / "var" / "postgres")
    yield server
    server.remove()


@pytest.fixture(scope="package")
def shared_server() -> Iterator[Server]:
    with a_folder_that_all_can_enter() as folder:
        server = Server(folder / "var" / "postgres")
        server.start()
        yield server
        server.remove()


@pytest.fixture
def prepared(server: Server) -> Prepare:
    """Its data is a copy of another's: an initdb takes seconds."""
    server.stop()

    def prepare(home: Path) -> Server:
        home.mkdir(parents=True)
        subprocess.run(["cp", "-a", server.cluster, home], check=True)
        return Server(home)

    return prepare


@pytest.fixture
def server(shared_server: Server) -> Server:
    """One that is running, and has for other tests before."""
    shared_server.start()
    return shared_server
