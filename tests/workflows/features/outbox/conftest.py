import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from pytest_django import Settings

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()


@pytest.fixture
def destinations(settings: Settings) -> Callable[..., None]:
    """Set the destinations; "crm" and "lake", which take all topics, unless the test names others."""

    def set_them(**named: Any) -> None:
        settings.OUTBOX_DESTINATIONS = json.dumps(named)

    webhook = {"url": "http://127.0.0.1:9/hooks", "secrets": [SECRET]}
    set_them(crm={**webhook, "topics": ["*"]}, lake={"kafka": "events", "topics": ["order.*"]})
    return set_them
