import pytest

from tests.workflows.testing.order import shop


@pytest.fixture(autouse=True)
def _empty_shop() -> None:
    shop.done.clear()
