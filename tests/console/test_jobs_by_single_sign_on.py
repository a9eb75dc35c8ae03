"""The same jobs by people who have signed in at an OpenID provider, with the groups that it gives them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.console.conftest import WORKFLOWS, Open, user_of
from tests.console.people import WithMouse
from tests.console.test_jobs import *  # noqa: F403 (each of its tests, with the fixtures below)
from tests.console.test_single_sign_on import at_provider, introduced
from tests.groups import GROUPS
from tests.servers import Gunicorn
from tests.staff.openid import OpenIdProvider

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    users = {f"some-{group}": {"groups": [group]} for group in GROUPS}
    provider = OpenIdProvider(tmp_path_factory.mktemp("openid"), users=users)
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def server_environment(provider: OpenIdProvider) -> dict[str, str]:
    return {
        "WORKFLOWS": ",".join(WORKFLOWS),
        "OIDC_ISSUER": provider.issuer,
        "OIDC_CLIENT_ID": "onramp",
        "OIDC_CLIENT_SECRET": "secret of onramp",
        "OIDC_GROUPS": json.dumps({group: group for group in GROUPS}),
    }


@pytest.fixture
def sign_in(server: Gunicorn, provider: OpenIdProvider) -> Callable[[Any, str, str], None]:
    """At the provider, which alone knows the groups."""
    introduced(provider, server)

    def sign_in(page: Any, group: str, path: str) -> None:
        user_of(group).groups.clear()
        # The provider's own page asks for a font.
        page.context.route("https://fonts.googleapis.com/**", lambda route: route.fulfill(body=""))
        page.goto(path)
        page.click("text=Sign in with single sign-on")
        at_provider(page, f"some-{group}")
        page.wait_for_url(f"**{path}")
        page.context.unroute_all()  # else the browser goes back past its cache

    return sign_in


@pytest.fixture
def sit_down(open_as: Open) -> Callable[[str], WithMouse]:
    return lambda group: WithMouse(open_as(group))
