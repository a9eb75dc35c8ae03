"""Single sign-on in a browser, under the console's policy: `form-action 'self'` lets no form lead to the provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.sessions.models import Session

from staff.session_store import SessionStore
from staff.single_sign_on import KEY
from tests.console.axe import findings
from tests.groups import make_groups
from tests.servers import Gunicorn
from tests.staff.openid import CALLBACK, OpenIdProvider
from tests.workflows import rows
from workflows.models import Workflow

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenIdProvider]:
    provider = OpenIdProvider(tmp_path_factory.mktemp("openid"), users={"ada": {"groups": ["onramp-leads"]}})
    yield provider
    provider.close()


@pytest.fixture(scope="module")
def server_environment(provider: OpenIdProvider) -> dict[str, str]:
    return {
        "WORKFLOWS": "tests.workflows.rows.PARCEL",
        "OIDC_ISSUER": provider.issuer,
        "OIDC_CLIENT_ID": "onramp",
        "OIDC_CLIENT_SECRET": "secret of onramp",
        "OIDC_GROUPS": '{"onramp-leads": "support lead"}',
    }


@pytest.fixture
def home(server: Gunicorn, provider: OpenIdProvider) -> str:
    return introduced(provider, server)


def introduced(provider: OpenIdProvider, server: Gunicorn) -> str:
    """The console's address, which the provider now knows."""
    home = f"http://127.0.0.1:{server.port}"
    provider.stop()
    provider.tell(redirects=[home + CALLBACK])
    provider.start()
    return home


def at_provider(page: Any, name: str = "ada") -> None:
    page.fill("[name=login]", name)
    page.fill("[name=password]", "any")
    with page.expect_navigation():
        page.click("[type=submit]")


def hours_pass() -> None:
    (kept,) = Session.objects.all()
    session = SessionStore(kept.session_key)
    session["session_confirmed"] = 0
    session[KEY] |= {"asked": 0, "answered": 0}
    session.save()


def test_a_form_whose_page_asks_the_provider_and_a_page_that_asks_who_it_is(browser: Any, home: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    make_groups()
    workflow = rows.failed()
    page.goto(f"{home}/admin/workflows/workflow/{workflow.pk}/acknowledge/")
    assert findings(page) == []
    page.click("text=Sign in with single sign-on")
    at_provider(page)
    page.fill("[name=reason]", "They were told.")
    hours_pass()
    page.click("main [type=submit]")
    page.wait_for_url(f"{home}/admin/workflows/workflow/{workflow.pk}/change/")
    assert Workflow.objects.get(pk=workflow.pk).acknowledged_failure
    hours_pass()
    waiting = f"{home}/admin/workflows/workflow/{rows.retrying().pk}"
    page.goto(f"{waiting}/change/")
    page.click("a:text-is('Cancel')")
    page.wait_for_selector("[name=login]")
    at_provider(page)
    page.wait_for_url(f"{waiting}/cancel/")
    context.close()
    assert not wrong
