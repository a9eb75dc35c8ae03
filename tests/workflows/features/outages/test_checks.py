from datetime import timedelta

import pytest

from tests.workflows import test_checks
from workflows.features.outages.checks import check_keys


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key_ttl": timedelta(minutes=5)}, ["workflows.W002"]),
        ({"key_ttl": timedelta(minutes=5), "lookup": test_checks.lookup}, []),
        ({"key_ttl": timedelta(days=1)}, []),
        ({"key_ttl": None}, []),
    ],
)
def test_a_key_that_is_forgotten_before_an_outage_is_over_is_named(
    options: dict[str, object], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = test_checks.definition(test_checks.once(**options))
    monkeypatch.setattr("workflows.features.outages.checks.readable_definitions", lambda: {"good": tried})
    assert [each.id for each in check_keys()] == told
