from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.db import connections

from tests import engine
from tests.engine import another_connection


@pytest.fixture(autouse=True)
def _no_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine works without any."""
    monkeypatch.setattr(engine, "FEATURES", ())


@pytest.fixture
def role() -> Iterator[str]:
    """A role that owns nothing, and may read and write nothing."""
    name = f"onramp_reader_{uuid4().hex}"  # roles are the server's: another test may have one just now
    with another_connection() as other:
        other.execute(f"CREATE ROLE {name}")
        yield name
        connections.close_all()
        other.execute(f"DROP OWNED BY {name}")
        other.execute(f"DROP ROLE {name}")
