"""What the peers' environment is made of, and what is said of a peer that cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.benchmark.peers import PEERS, venv


def test_each_peer_is_in_the_group_and_each_of_the_group_has_an_exact_version() -> None:
    named = {venv.name_of(requirement).lower() for requirement in venv.group()}
    assert {name for peer in PEERS.values() for name in peer.requirements} <= named
    lines = [line for line in venv.CONSTRAINTS.read_text().splitlines() if not line.startswith("#")]
    assert all("==" in line for line in lines)
    assert named <= {line.partition("==")[0].lower() for line in lines}


def test_a_peer_that_cannot_be_installed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(venv, "VENV", tmp_path)
    monkeypatch.setattr(venv, "PYTHON", Path(sys.executable))
    missing = tmp_path / "procrastinate-1.0-py3-none-any.whl"
    monkeypatch.setattr(venv, "group", lambda: [f"procrastinate @ {missing.as_uri()}"])
    why_not = venv.install(PEERS["procrastinate"])
    assert "No such file" in why_not
    assert str(missing) in why_not
    assert list(tmp_path.iterdir()) == [], "and it is tried again the next time"


def test_what_is_installed_is_not_installed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(venv, "VENV", tmp_path)
    monkeypatch.setattr(venv, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(venv, "run", lambda *command: commands.append(command) or "")
    for _ in range(2):
        assert venv.install(PEERS["absurd"]) == ""
    installed = [requirement for command in commands for requirement in command if "absurd" in requirement]
    assert [venv.name_of(each) for each in installed] == ["absurd-sdk", "absurdctl"]
