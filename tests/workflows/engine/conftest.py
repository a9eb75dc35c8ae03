from typing import Any

import pytest

from tests import engine
from workflows.features.installed import FEATURES

# The most telling of these tests. They also run with each feature alone: none needs another.
ALONE = ("test_compensation", "test_failures", "test_poison", "test_retries")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.endswith(ALONE):
        alone = [pytest.param((each,), id=type(each).__name__, marks=pytest.mark.slow) for each in FEATURES]
        metafunc.parametrize("_features", [pytest.param((), id="none"), *alone], indirect=True)


@pytest.fixture(autouse=True)
def _features(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine works without any."""
    features: Any = getattr(request, "param", ())
    monkeypatch.setattr(engine, "FEATURES", features)
