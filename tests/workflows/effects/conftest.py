import pytest

from tests.workflows.downstream import Downstream


@pytest.fixture
def service() -> Downstream:
    return Downstream()
