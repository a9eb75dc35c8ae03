import pytest

from tests import engine


@pytest.fixture(autouse=True)
def _no_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine works without any."""
    monkeypatch.setattr(engine, "FEATURES", ())
