"""Every page of the console in its states, for the tests that look at all of them: a page that is not here fails one.

A page is named by its URL in the resolver. What it shows is made by `path`, which returns its address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.urls import URLPattern, URLResolver, reverse

from tests.console import states
from tests.console.scenes import EMAIL, charged, failed_reversal, of, unclear_call
from tests.workflows import rows
from tests.workflows.admin import targets
from workflows.telling.words import TASK_TYPES

CAUSE = "&workflow_type=parcel&step=charge&code=card_declined"
SUPERUSER, NOBODY = "superuser", ""
READ_ONLY = (
    *("workflow", "manualtask", "service", "pace", "workerprocess", "apikey", "undeliveredmessage", "bulkoperation"),
    *("outboxevent", "hold", "erasure"),
)


@dataclass(frozen=True)
class Shown:
    """A page in one of its states, as somebody of a group sees it after `then` was done on it."""

    name: str
    state: str
    path: Callable[[], str]
    then: Callable[[Any], None] | None = None
    status: int = 200
    group: str = SUPERUSER

    def __str__(self) -> str:
        return f"{self.name} ({self.state})" if self.state else self.name


# What has a name and no page: it answers a script or leads on, and shows nothing.
NO_PAGES = {
    "autocomplete": "JSON",
    "audit_export": "a file",
    "jsi18n": "a script",
    "session": "JSON",
    "workflows_manualtask_claim": "a POST that leads to the task",
    "workflows_manualtask_release": "a POST that leads to the task",
}


def names(patterns: Iterable[URLPattern | URLResolver] | None = None) -> Iterator[str]:
    """The names of all URLs of the console."""
    for pattern in admin.site.get_urls() if patterns is None else patterns:
        if isinstance(pattern, URLResolver):
            yield from names(pattern.url_patterns)
        elif pattern.name:
            yield pattern.name


def of_cause(page: str) -> Callable[[], str]:
    return lambda: reverse(f"admin:workflows_service_{page}", args=[quote(states.cause().pk)])


def in_bulk(page: str, state: str) -> Callable[[], str]:
    return lambda: f"/admin/workflows/bulkoperation/{states.bulk_operation(state).pk}/{page}/"


def approval() -> str:
    return of(rows.asked_to_correct().workflow, "approve_correction")


# --- What is done on a page ---------------------------------------------------------------------


def press(button: str, **typed: str) -> Callable[[Any], None]:
    """Fill in the fields, and press the button; the browser checks nothing by itself."""

    def then(page: Any) -> None:
        for name, text in typed.items():
            page.fill(f"#content [name='{name}']", text)
        page.evaluate("for (const form of document.forms) form.noValidate = true")
        with page.expect_navigation():
            page.locator("#content").get_by_role("button", name=button).first.click()

    return then


def action(value: str) -> Callable[[Any], None]:
    """Choose all rows of a list, and something to do with them."""

    def then(page: Any) -> None:
        page.check("#action-toggle")
        page.select_option("[name=action]", value)
        with page.expect_navigation():
            page.click("[name=index]")

    return then


def mangled(selector: str, then: Callable[[Any], None]) -> Callable[[Any], None]:
    """Send a form whose fields hold what they cannot."""

    def mangle_and(page: Any) -> None:
        page.evaluate(f"for (const each of document.querySelectorAll('{selector}')) each.value = 'x'")
        then(page)

    return mangle_and


def too_late(page: Any) -> None:
    """Others have been there meanwhile."""
    states.end_all()
    press("Run now")(page)


def reveal_all(page: Any) -> None:
    for box in page.locator("#content [type=checkbox]").all():
        box.check()
    press("Reveal workflow", reason="To call her back.")(page)


def sign_out(page: Any) -> None:
    with page.expect_navigation():
        page.click("#logout-form button")


def unfold(page: Any) -> None:
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


# --- Addresses ---------------------------------------------------------------------------------


def listed(model: str, query: str = "") -> Callable[[], str]:
    return lambda: f"/admin/workflows/{model}/{query}"


def at(path: str) -> Callable[[], str]:
    return lambda: path


def about(model: str, row: Callable[[], Any], page: str) -> Callable[[], str]:
    return lambda: f"/admin/auth/{model}/{row().pk}/{page}/"


def row_page(model: str, page: str) -> Callable[[], str]:
    return lambda: f"/admin/workflows/{model}/{states.ROW_OF[model]()}/{page}/"


# --- The pages ----------------------------------------------------------------------------------

EMPTY = [
    Shown("index", "nothing there", at("/admin/")),
    *(Shown(f"workflows_{model}_changelist", "empty", listed(model)) for model in READ_ONLY),
    Shown("find", "", at("/admin/find/")),
    Shown("find", "nothing typed", at("/admin/find/"), press("Find")),
    Shown("find", "nothing found", at("/admin/find/"), press("Find", q="nobody@example.com")),
    Shown("app_list", "", at("/admin/workflows/")),
    Shown("needs_a_person", "empty", at("/admin/needs-a-person/")),
    Shown("failures", "empty", at("/admin/failures/")),
    Shown("audit", "empty", at("/admin/audit/?person=nobody")),
    Shown("index", "for somebody who may see nothing", at("/admin/"), group="nobody"),
    Shown("workflows_workflow_changelist", "not allowed", listed("workflow"), status=403, group="nobody"),
    Shown("workflows_workflow_change", "not there", at("/admin/workflows/workflow/99/change/"), status=404),
]

WORKFLOWS = [
    *(
        Shown("workflows_workflow_change", state.value, lambda make=make: of(make()))  # type: ignore[misc]
        for state, make in states.IN_STATE.items()
    ),
    Shown("workflows_workflow_change", "charged, for support", lambda: of(charged()), group="support"),
    Shown("workflows_workflow_change", "all folded", lambda: of(states.everything())),
    Shown("workflows_workflow_change", "all unfolded", lambda: of(states.everything()), unfold),
    Shown("workflows_workflow_retry", "", lambda: of(states.everything(), "retry")),
    Shown("workflows_workflow_retry", "without a reason", row_page("workflow", "retry"), press("Retry workflow")),
    Shown("workflows_workflow_run_now", "", lambda: of(rows.retrying(), "run_now")),
    Shown("workflows_workflow_cancel", "", lambda: of(unclear_call().workflow, "cancel")),
    Shown(
        "workflows_workflow_cancel", "without a reason", lambda: of(rows.retrying(), "cancel"), press("Cancel workflow")
    ),
    Shown("workflows_workflow_acknowledge", "", row_page("workflow", "acknowledge")),
    Shown("workflows_workflow_reveal", "", lambda: of(charged(), "reveal"), group="support lead"),
    Shown("workflows_workflow_reveal", "nothing chosen", lambda: of(charged(), "reveal"), press("Reveal workflow")),
    Shown("workflows_workflow_reveal", "revealed", lambda: of(charged(), "reveal"), reveal_all),
    Shown(
        "workflows_workflow_not_a_duplicate",
        "",
        lambda: of(rows.failed(last_error_code="duplicate_of"), "not_a_duplicate"),
    ),
    Shown("workflows_workflow_correct", "", lambda: of(rows.failed(), "correct"), group="engineer"),
    Shown(
        "workflows_workflow_correct",
        "nothing changed",
        lambda: of(rows.failed(), "correct"),
        press("Ask to correct", reason="She said so."),
        group="engineer",
    ),
    Shown("workflows_workflow_approve_correction", "", approval, group="engineer"),
    Shown("workflows_workflow_close_correction", "", lambda: of(rows.asked_to_correct().workflow, "close_correction")),
    Shown("workflows_workflow_change", "to be corrected", lambda: of(rows.asked_to_correct().workflow)),
    Shown("workflows_workflow_place_hold", "", lambda: of(rows.complete(), "place_hold")),
    Shown(
        "workflows_workflow_place_hold",
        "without an end",
        lambda: of(rows.complete(), "place_hold"),
        press("Place a legal hold", reason="A court asks."),
    ),
    Shown("workflows_workflow_ask_erasure", "refused", lambda: of(rows.retrying(), "ask_erasure")),
    Shown("workflows_workflow_change", "held", lambda: of(states.held())),
    Shown("needs_a_person", "", at("/admin/needs-a-person/")),
    Shown("failures", "", lambda: states.failed("/admin/failures/")),
    Shown("audit", "", lambda: states.looked_at("/admin/audit/")),
    Shown("audit", "of a patient", lambda: states.looked_at("/admin/audit/?patient={}&sort=looked"), group="auditor"),
    Shown("assign_failures", "", lambda: states.failed("/admin/assign-failures/?release=" + CAUSE)),
    Shown(
        "workflows_workflow_changelist",
        "a group of failures",
        lambda: states.failed("/admin/workflows/workflow/?preset=unacknowledged" + CAUSE),
    ),
    Shown("workflows_workflow_follow_up", "", lambda: targets.run_again()[0]),
    Shown("workflows_workflow_changelist", "", listed("workflow")),
    Shown("workflows_workflow_changelist", "filtered", listed("workflow", "?state=failed&preset=attention")),
    Shown("workflows_workflow_changelist", "nothing fits", listed("workflow", "?state=complete&preset=attention")),
    Shown(
        "workflows_workflow_changelist", "nothing chosen", listed("workflow"), lambda page: page.click("[name=index]")
    ),
    Shown("workflows_workflow_changelist", "a retry of several", listed("workflow"), action("retry")),
    Shown(
        "workflows_workflow_changelist",
        "could not be read",
        listed("workflow"),
        mangled(".action-select", action("retry")),
    ),
    Shown("find", "a form that is too old", at("/admin/find/"), mangled("[name=csrfmiddlewaretoken]", press("Find"))),
    Shown("find", "several found", states.found_twice, press("Find", q=EMAIL)),
    Shown("index", "in trouble", states.trouble),
    Shown("index", "for support", at("/admin/"), group="support"),
    Shown("workflows_workflow_change", "refused", lambda: of(rows.retrying(), "run_now"), too_late),
]

TASKS = [
    Shown("workflows_manualtask_change", "a review", lambda: of(states.task(facts=states.facts()))),
    Shown(
        "workflows_manualtask_change",
        "with fields",
        lambda: of(states.task(answer_model="tests.workflows.rows.Context")),
    ),
    Shown(
        "workflows_manualtask_change", "with fields that nobody knows", lambda: of(states.task(answer_model="no.Such"))
    ),
    Shown("workflows_manualtask_change", "Unclear call", lambda: of(unclear_call())),
    Shown(
        "workflows_manualtask_change",
        "Unclear call of any result",
        lambda: of(states.task(task_type="effect_in_doubt", about="reserve")),
    ),
    Shown("workflows_manualtask_change", "Failed reversal", lambda: of(failed_reversal())),
    *(
        Shown("workflows_manualtask_change", TASK_TYPES[kind], lambda kind=kind: of(states.task(task_type=kind)))  # type: ignore[misc]
        for kind in ("step_undeclared", "keeps_dying", "keeps_being_lost", "secrets_unreadable")
    ),
    Shown("workflows_manualtask_change", "overdue, and another's", lambda: of(states.overdue())),
    Shown("workflows_manualtask_change", "for who may not decide", lambda: of(states.task()), group="auditor"),
    Shown("workflows_manualtask_change", "approved", lambda: of(states.decided())),
    Shown("workflows_manualtask_change", "rejected", lambda: of(states.decided("rejected"))),
    Shown("workflows_manualtask_change", "expired", lambda: of(states.task(state="expired"))),
    Shown("workflows_manualtask_change", "no longer asked", lambda: of(states.task(state="closed"))),
    Shown("workflows_manualtask_change", "answered", lambda: of(states.taken_back())),
    Shown("workflows_manualtask_change", "retracted", lambda: of(states.answer_that_was_taken_back())),
    Shown("workflows_manualtask_take_back", "", lambda: of(states.taken_back(), "take_back")),
    Shown("workflows_manualtask_assign", "", lambda: targets.assign()[0]),
    Shown("workflows_manualtask_ask_lead", "", row_page("manualtask", "ask_lead")),
    Shown(
        "workflows_manualtask_assign", "nobody chosen", lambda: targets.assign()[0], press("Assign it to a colleague")
    ),
    Shown("workflows_manualtask_decide", "no fields filled in", lambda: of(unclear_call()), press("It happened")),
    Shown("workflows_manualtask_decide", "nothing said", lambda: of(failed_reversal()), press("It is settled")),
    Shown("workflows_manualtask_decide", "without a reason", lambda: of(states.task()), press("Reject")),
    Shown("workflows_manualtask_changelist", "", listed("manualtask")),
    Shown("workflows_manualtask_changelist", "closed", listed("manualtask", "?state=done")),
]


THINGS = [
    Shown("workflows_service_change", "", row_page("service", "change")),
    Shown("workflows_service_hold", "", row_page("service", "hold")),
    Shown("workflows_service_hold", "of no time", row_page("service", "hold"), press("Hold", until="2020-01-01T10:00")),
    Shown("workflows_service_try_now", "", row_page("service", "try_now")),
    Shown("workflows_service_change", "a step where many fail", of_cause("change")),
    Shown("workflows_service_let_fail", "", of_cause("let_fail")),
    Shown("workflows_service_changelist", "", listed("service")),
    Shown("workflows_pace_change", "", row_page("pace", "change")),
    Shown("workflows_pace_hold", "", row_page("pace", "hold")),
    Shown("workflows_pace_release", "", row_page("pace", "release")),
    Shown("workflows_pace_set_pace", "", row_page("pace", "set_pace")),
    Shown("workflows_pace_set_pace", "without a reason", row_page("pace", "set_pace"), press("Set the pace")),
    Shown("workflows_pace_set_cap", "", row_page("pace", "set_cap")),
    Shown("workflows_pace_changelist", "", listed("pace")),
    *(
        Shown(f"workflows_bulkoperation_{page}", f"{page} {state}", in_bulk(page, state))
        for page, state in {
            "change": "running",
            "start": "draft",
            "pause": "running",
            "resume": "paused",
            "stop": "running",
        }.items()
    ),
    Shown("workflows_bulkoperation_change", "done", in_bulk("change", "done")),
    Shown("workflows_bulkoperation_start", "without a reason", in_bulk("start", "draft"), press("Start the")),
    Shown("workflows_bulkoperation_approve", "", in_bulk("approve", "asked"), group="support lead"),
    Shown("workflows_bulkoperation_changelist", "", listed("bulkoperation")),
    Shown("workflows_workerprocess_change", "", row_page("workerprocess", "change")),
    Shown("workflows_workerprocess_changelist", "", listed("workerprocess")),
    Shown("workflows_apikey_change", "", row_page("apikey", "change")),
    Shown("workflows_apikey_revoke", "", row_page("apikey", "revoke")),
    Shown("workflows_apikey_changelist", "", listed("apikey")),
    Shown("workflows_undeliveredmessage_change", "", row_page("undeliveredmessage", "change")),
    Shown("workflows_undeliveredmessage_redeliver", "", row_page("undeliveredmessage", "redeliver")),
    Shown("workflows_undeliveredmessage_discard", "", row_page("undeliveredmessage", "discard")),
    Shown("workflows_undeliveredmessage_changelist", "open", listed("undeliveredmessage", "?state=open")),
    Shown("workflows_undeliveredmessage_changelist", "", listed("undeliveredmessage")),
    Shown("workflows_outboxevent_change", "", row_page("outboxevent", "change")),
    Shown("workflows_outboxevent_redeliver", "", row_page("outboxevent", "redeliver")),
    Shown("workflows_outboxevent_discard", "", row_page("outboxevent", "discard")),
    Shown("workflows_outboxevent_changelist", "given up", listed("outboxevent", "?state=given_up")),
    Shown("workflows_outboxevent_changelist", "", listed("outboxevent")),
    Shown("workflows_hold_change", "", row_page("hold", "change")),
    Shown("workflows_hold_extend", "", row_page("hold", "extend")),
    Shown("workflows_hold_lift", "", row_page("hold", "lift")),
    Shown("workflows_hold_changelist", "", listed("hold")),
    Shown("workflows_erasure_change", "", row_page("erasure", "change")),
    Shown("workflows_erasure_approve", "", row_page("erasure", "approve")),
    Shown("workflows_erasure_refuse", "", row_page("erasure", "refuse")),
    Shown("workflows_erasure_changelist", "", listed("erasure")),
    *(Shown(f"workflows_{model}_history", "", row_page(model, "history")) for model in READ_ONLY),
    *(Shown(f"workflows_{model}_add", "not allowed", listed(model, "add/"), status=403) for model in READ_ONLY),
    *(Shown(f"workflows_{model}_delete", "not allowed", row_page(model, "delete"), status=403) for model in READ_ONLY),
]

SIGN_IN = {"username": "some-superuser", "password": "wrong"}
PEOPLE = [
    Shown("auth_user_change", "", about("user", states.user, "change")),
    Shown("auth_user_password_change", "", about("user", states.user, "password")),
    Shown(
        "auth_user_password_change",
        "too short",
        about("user", states.user, "password"),
        press("Change password", password1="a"),
    ),
    Shown("auth_user_history", "", about("user", states.user, "history")),
    Shown("auth_user_delete", "", about("user", states.user, "delete")),
    Shown("auth_user_add", "", at("/admin/auth/user/add/")),
    Shown("auth_user_add", "nothing filled in", at("/admin/auth/user/add/"), press("Save")),
    Shown("auth_user_changelist", "", at("/admin/auth/user/")),
    Shown("auth_user_changelist", "searched", at("/admin/auth/user/?q=zzz&is_staff__exact=1")),
    Shown("auth_user_changelist", "saved", about("user", states.user, "change"), press("Save")),
    Shown("auth_user_changelist", "several deleted", at("/admin/auth/user/"), action("delete_selected")),
    Shown("auth_group_change", "", about("group", states.group, "change")),
    Shown("auth_group_change", "to look at", about("group", states.group, "change"), group="administrator"),
    Shown("auth_user_change", "to look at", about("user", states.user, "change"), group="administrator"),
    Shown("auth_group_history", "", about("group", states.group, "history")),
    Shown("auth_group_delete", "", about("group", states.group, "delete")),
    Shown("auth_group_add", "", at("/admin/auth/group/add/")),
    Shown("auth_group_changelist", "", at("/admin/auth/group/")),
    Shown("app_list", "of people", at("/admin/auth/")),
    Shown("password_change", "", at("/admin/password_change/")),
    Shown("password_change", "nothing filled in", at("/admin/password_change/"), press("Change my password")),
    Shown("password_change_done", "", at("/admin/password_change/done/")),
    Shown("login", "", at("/admin/login/"), group=NOBODY),
    Shown("login", "sent back", at("/admin/workflows/workflow/"), group=NOBODY),
    Shown("login", "nothing filled in", at("/admin/login/"), press("Log in"), group=NOBODY),
    Shown("login", "wrong", at("/admin/login/"), press("Log in", **SIGN_IN), group=NOBODY),
    Shown("login", "too often", at("/admin/login/"), press("Log in", **SIGN_IN), group=NOBODY),
    Shown("logout", "", at("/admin/"), sign_out),
]

PAGES = {"empty": EMPTY, "workflows": WORKFLOWS, "tasks": TASKS, "things": THINGS, "people": PEOPLE}
