"""Every POST form of a page, sent as the page came: by each of its buttons, and by none.

What it may do all the same stands in `NEEDS_NEITHER`: whatever is not in it must change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.contrib.messages import ERROR, get_messages
from django.http import SimpleCookie
from django.test import Client
from django.urls import resolve

from tests.workflows.admin.walk.forms import Sent, untouched
from tests.workflows.admin.walk.scene import TASKS, WORKFLOWS, Scene
from tests.workflows.admin.walk.stored import Watch, undone

# What an untouched form does, and why that is not a slip: by its URL's name, and the button with digits as N. The name
# of a row of the scene says that it is so for this row alone.
BUTTON = "the button is the decision: the page has said what it does"
DJANGOS = "Django's own: it saves what is there already"
NEEDS_NEITHER = {
    "workflows_workflow_run_now: Run now workflow N": "nothing is refused, reversed or answered by it",
    "workflows_workflow_team_has_seen: Mark workflow N as seen to by the team Support leads": "it decides nothing",
    "workflows_workflow_resume: Resume workflow N": "nothing is refused, reversed or answered by it",
    "workflows_workflow_say_whether: Say whether the unclear call of workflow N happened": "it only asks",
    "workflows_workflow_follow_up given-up: Run a failed step again": "only one step has failed, and is named",
    "mail: Send me no mail": "it is about oneself alone, and the same button takes it back",
    "left_undone: Run N again": "it only chooses: the next page asks for a reason",
    "workflows_workflow_changelist: Retry the N that failed": "it only chooses: the next page asks for a reason",
    "workflows_manualtask_claim: Assign to me": "nothing is decided, and it is given back by a button",
    "workflows_manualtask_release: Unassign": "nothing is decided",
    "workflows_manualtask_decide: Approve": BUTTON,
    "workflows_outboxevent_redeliver: Redeliver outbox event N": BUTTON,
    "workflows_erasure_approve: Approve erasure N, and erase": BUTTON,
    "workflows_erasure_refuse: Refuse erasure N": BUTTON,
    "workflows_proposal_approve: Approve the proposal to retry workflow N": BUTTON,
    "workflows_workflow_lead_has_seen: Mark workflow N as seen to by a lead": "a lead can be asked again",
    **{
        f"workflows_bulkoperation_{verb}: {asks} retry of N workflow": BUTTON
        for verb, asks in {
            "approve": "Approve the",
            "pause": "Pause the",
            "resume": "Resume the",
            "stop": "Cancel the rest of the",
        }.items()
    },
    "workflows_manualtask_decide: Approve and next (N left)": BUTTON,
    "workflows_manualtask_decide lost: Try again": BUTTON,
    "workflows_manualtask_decide undecided: Reverse it": BUTTON,
    "workflows_manualtask_decide undecided: Retry it": BUTTON,
    **{
        f"auth_{model}_change: {button}": DJANGOS
        for model in ("user", "group")
        for button in ("", "Save", "Save and add another", "Save and continue editing")
    },
    "deputies: End": BUTTON,
    **{f"sessions: {button}": BUTTON for button in ("End all others", "End Another browser on an unknown system")},
    **{f"auth_{page}: Yes, I\u2019m sure": BUTTON for page in ("group_changelist", "group_delete", "user_delete")},
}
# What is offered though it may be refused, and what is known only once it is tried.
ONLY_TRIED = {"workflows_undeliveredmessage_redeliver": "whether the message can become a signal by now"}
# A superuser's pages have them all: else the test would be silent about one.
FORMS_OF_ALL = {
    *("find", "logout", "sessions", "deputies", "password_change", "audit_export"),
    *("workflows_workflow_reveal", "workflows_proposal_approve", "workflows_proposal_refuse"),
    *(
        f"workflows_workflow_{verb}"
        for verb in ("changelist", "retry", "run_now", "cancel", "close_correction", "follow_up", "acknowledge")
    ),
    *(f"workflows_manualtask_{verb}" for verb in ("decide", "claim", "release", "assign", "take_back")),
    *("workflows_apikey_revoke", *(f"workflows_service_{verb}" for verb in ("hold", "try_now", "let_fail"))),
    *(f"workflows_pace_{verb}" for verb in ("hold", "release", "set_pace", "set_cap")),
    *(f"auth_{page}" for page in ("user_add", "user_change", "user_delete", "user_password_change")),
    *(f"auth_{page}" for page in ("group_add", "group_change", "group_delete")),
}

TOKEN = "csrfmiddlewaretoken"
OF_MODEL = {"workflow": WORKFLOWS, "manualtask": TASKS}

# By the row that a form is about, and for any: the tables that it changes, empty for none.
Done = dict[tuple[str, str], list[str]]


def what_untouched_forms_do(client: Client, scene: Scene, pages: Mapping[str, str], watch: Watch) -> Done:
    every = {
        (sent.url, sent.label, tuple(field for field in sent.fields if field[0] != TOKEN)): sent
        for url, html in _with_actions(client, pages)
        for sent in untouched(url, html)
    }
    cookies = client.cookies.output(header="")
    done: Done = {}
    for sent in every.values():
        client.cookies = SimpleCookie(cookies)
        data: dict[str, Any] = {}
        for name, value in sent.fields:
            data.setdefault(name, []).append(value)
        with undone():
            answer = client.post(sent.url, data)
            name = _keys(sent, scene)
            found = watch.changed()
            # Who may only look at a row gets Django's form without a button.
            if answer.status_code not in (200, 302) and (sent.label or answer.status_code != 403):
                found.append(f"nothing: it is offered, and answers {answer.status_code}")
            errors = [each for each in get_messages(answer.wsgi_request) if each.level == ERROR]
            if not ONLY_TRIED.keys() & {part.partition(":")[0] for part in name}:
                found += [f"nothing: it is offered, and refused. {each}" for each in errors]
            done[name] = sorted({*done.get(name, ()), *found})
    client.cookies = SimpleCookie(cookies)
    return done


def _with_actions(client: Client, pages: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The pages, and those to which an action on a ticked row of a list leads."""
    for url, html in pages.items():
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


def _keys(sent: Sent, scene: Scene) -> tuple[str, str]:
    """What a form is called in NEEDS_NEITHER: for the row that it is about, and for any."""
    found = resolve(sent.url.partition("?")[0])
    pk = next(iter(found.kwargs.values()), None)
    model = str(found.url_name).split("_")[1] if pk else ""
    row = next((name for name in OF_MODEL.get(model, ()) if str(scene.args[name]) == str(pk)), "?")
    label = re.sub("[0-9]+", "N", sent.label)
    return f"{found.url_name} {row}: {label}", f"{found.url_name}: {label}"
