from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the services were asked, and did. The workers inherit where it is."""
    path = tmp_path / "services"
    path.touch()
    monkeypatch.setenv("SCENARIOS_LOG", str(path))
    return path
