"""No action succeeds by a form that nobody has touched, where a decision or a reason is needed.

Every POST form of every page, as everybody, is sent just as its page came: by each of its buttons, and by none. What it
may do all the same stands in `NEEDS_NEITHER`: whatever is not in it must change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.http import SimpleCookie
from django.test import Client
from django.urls import resolve

from tests.workflows.admin.conftest import crawl
from tests.workflows.admin.walk.forms import Sent, untouched
from tests.workflows.admin.walk.scene import ROLES, TASKS, WORKFLOWS, Scene
from tests.workflows.admin.walk.stored import changed, stored, undone
from tests.workflows.admin.walk.urls import address

# What an untouched form does, and why that is no slip: by its URL's name, and the button with digits as N. The name of
# a row of the scene says that it is so for this row alone.
BUTTON = "the button is the decision: the page has said what it does"
DJANGOS = "Django's own: it saves what is there already"
NEEDS_NEITHER = {
    "workflows_workflow_run_now: Run now workflow N": "nothing is refused, reversed or answered by it",
    "workflows_workflow_follow_up given-up: Run a failed step again": "only one step has failed, and is named",
    "workflows_manualtask_claim: Assign to me": "nothing is decided, and it is given back by a button",
    "workflows_manualtask_release: Unassign": "nothing is decided",
    "workflows_manualtask_decide: Approve": BUTTON,
    "workflows_manualtask_decide: Approve and next (N left)": BUTTON,
    "workflows_manualtask_decide lost: Try again": BUTTON,
    **{
        f"auth_{model}_change: {button}": DJANGOS
        for model in ("user", "group")
        for button in ("", "Save", "Save and add another", "Save and continue editing")
    },
    **{f"auth_{page}: Yes, I\u2019m sure": BUTTON for page in ("group_changelist", "group_delete", "user_delete")},
    # The first in a superuser's list has decided tasks: nobody deletes that one.
    (OF_ADMINISTRATORS := "auth_user_changelist: Yes, I\u2019m sure"): BUTTON,
}

# Whoever is not staff has no page with a form but the sign-in.
STAFF = [role for role in ROLES.values() if role not in ("a user who is not staff", "nobody")]
TOKEN = "csrfmiddlewaretoken"


def pages_of(client: Client, scene: Scene) -> Iterator[tuple[str, str]]:
    """Every page that links lead to; and those to which an action on a ticked row of a list leads."""
    closed = address("workflows_manualtask_change", scene.args["answered"])  # the inbox shows what is open
    start = ["/admin/", *([closed] if client.get(closed).status_code == 200 else [])]
    for url, html in crawl(client, start=start, but=("/admin/jsi18n/",), filtered=False).items():
        yield url, html
        token = re.search(rf'name="{TOKEN}" value="(\w+)"', html)
        ticked = re.search(r'name="_selected_action" value="(\d+)"', html)
        offered = re.search(r'<select name="action".*?</select>', html, re.DOTALL)
        for action in re.findall(r'<option value="(\w+)"', offered[0]) if offered and ticked and token else ():
            form = {TOKEN: token[1], "action": action, "_selected_action": ticked[1], "index": "0"}
            with undone():
                answer = client.post(url, form)
            if answer.status_code == 200:
                yield url, answer.content.decode()


def keys(sent: Sent, scene: Scene) -> tuple[str, str]:
    """What a form is called in NEEDS_NEITHER: for the row that it is about, and for any."""
    found = resolve(sent.url.partition("?")[0])
    pk = next(iter(found.kwargs.values()), None)
    model = str(found.url_name).split("_")[1] if pk else ""
    row = next((name for name in OF_MODEL.get(model, ()) if str(scene.args[name]) == str(pk)), "?")
    label = re.sub("[0-9]+", "N", sent.label)
    return f"{found.url_name} {row}: {label}", f"{found.url_name}: {label}"


OF_MODEL = {"workflow": WORKFLOWS, "manualtask": TASKS}


def what_untouched_forms_do(role: str) -> dict[tuple[str, str], list[str]]:
    """What each way to send each form has changed, by `keys`; empty for nothing."""
    scene = Scene(role)
    client = scene.sign_in(csrf=True)
    every = {
        (sent.url, sent.label, tuple(field for field in sent.fields if field[0] != TOKEN)): sent
        for url, html in pages_of(client, scene)
        for sent in untouched(url, html)
    }
    cookies, before = client.cookies.output(header=""), stored()
    done: dict[tuple[str, str], list[str]] = {}
    for sent in every.values():
        client.cookies = SimpleCookie(cookies)
        data: dict[str, Any] = {}
        for name, value in sent.fields:
            data.setdefault(name, []).append(value)
        with undone():
            answer = client.post(sent.url, data)
            name = keys(sent, scene)
            # Who may only look at a row gets Django's form without a button.
            refused = not sent.label and answer.status_code == 403
            assert refused or answer.status_code in (200, 302), f"{name} is offered, and answers {answer.status_code}"
            done[name] = sorted({*done.get(name, ()), *changed(before, stored())})
    return done


@pytest.fixture(autouse=True)
def fast_hasher(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.mark.parametrize("role", STAFF)
def test_an_untouched_form_does_nothing_that_needs_a_decision_or_a_reason(db: None, role: str) -> None:
    done = what_untouched_forms_do(role)
    assert len(done) >= 2, "at least the search and the sign-out are on every page"
    slips = {name[0]: tables for name, tables in done.items() if tables and not NEEDS_NEITHER.keys() & set(name)}
    assert not slips, (
        f"As {role} these forms, sent as their page came, change what is stored: {slips}. Let the form ask for a "
        "decision or a reason; or, if it needs neither, say why in NEEDS_NEITHER."
    )
    if role == "superuser":
        acted = {each for name, tables in done.items() if tables for each in name}
        assert NEEDS_NEITHER.keys() - {OF_ADMINISTRATORS} <= acted, (
            "these do nothing, or are not there any more: take them out"
        )
        assert_every_form_is_among(done)


def assert_every_form_is_among(done: dict[tuple[str, str], list[str]]) -> None:
    """The crawl reaches them: else the test would be silent about them."""
    assert {name.partition(":")[0] for _, name in done} >= {
        *("find", "logout", "password_change"),
        *(
            f"workflows_workflow_{verb}"
            for verb in ("changelist", "retry", "run_now", "cancel", "follow_up", "acknowledge")
        ),
        *(f"workflows_manualtask_{verb}" for verb in ("decide", "claim", "release", "assign", "take_back")),
        *("workflows_apikey_revoke", "workflows_service_hold", "workflows_service_try_now"),
        *(f"auth_{page}" for page in ("user_add", "user_change", "user_delete", "user_password_change")),
        *(f"auth_{page}" for page in ("group_add", "group_change", "group_delete")),
    }
