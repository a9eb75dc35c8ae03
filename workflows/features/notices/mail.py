"""MAIL about what waits for people, through Django's e-mail backend: https://docs.djangoproject.com/en/5.2/topics/email/

Each event is one message, to all who may act (in `bcc`: they do not learn of each other).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from smtplib import SMTPException
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage, get_connection
from django.db.models import Q, QuerySet
from django.urls import NoReverseMatch, reverse

from workflows.features.notices.waiting import SECOND
from workflows.features.outbox.destinations import Destination
from workflows.features.outbox.sending import SENT, UNTRIED, Outcome, Taken
from workflows.models import ManualTask, MutedMail
from workflows.models.manual_task import ASSIGN, PERMISSION_BACKEND, RESOLVE, able_to_decide
from workflows.postgres.deadlines import query_in_time
from workflows.wording import length, plain

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# Seconds for each answer of the mail server; shorter than the relay's lease.
PATIENCE = 5.0
NOBODY = Outcome("nobody who may act has an e-mail address")
# The subject for one, and for many.
_WORDS = {
    "task.opened": ("A task waits", "{} tasks wait"),
    "task.assigned": ("A task is assigned to you", "{} tasks are assigned to you"),
    "task.due_soon": ("A task is due within the hour", "{} tasks are due within the hour"),
    "task.overdue": ("A task is overdue", "{} tasks are overdue"),
    "reversal.failed": ("A reversal failed", "{} reversals failed"),
    "lead.asked": ("A lead is asked for help", "A lead is asked for help with {} tasks"),
    SECOND: ("A second person is wanted", "A second person is wanted for {} requests"),
}


class Mail:
    """Sends events as e-mail."""

    at_once = 4

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def send(self, events: Sequence[Taken], must_not_begin: Callable[[], bool]) -> Sequence[Outcome]:
        return [UNTRIED if must_not_begin() else self._send(each) for each in events]

    def close(self) -> None: ...

    def _send(self, event: Taken) -> Outcome:
        body = json.loads(event.body)
        to = query_in_time(lambda: addresses(event.topic, body))
        if not to:
            return NOBODY
        message = EmailMessage(
            subject(event.topic, body),
            text(event.topic, body),
            self._destination.email,
            bcc=to,
            headers={"Message-ID": f"<{event.event_id}@onramp>", "Auto-Submitted": "auto-generated"},
            connection=get_connection(timeout=PATIENCE),
        )
        try:
            message.send()
        except (SMTPException, OSError) as error:
            return Outcome(type(error).__name__)
        return SENT


def addresses(topic: str, body: Mapping[str, Any]) -> list[str]:
    """The addresses of the people who may act; of all of them if each wants no mail; or of those who can help."""
    users = get_user_model().objects.filter(is_active=True, is_staff=True).exclude(email="")
    muted = Q(pk__in=MutedMail.objects.values("pk"))
    able = _able(topic, body, users)
    for found in (able.exclude(muted), able, _with(ASSIGN, users), users.filter(is_superuser=True)):
        if to := sorted({*found.values_list("email", flat=True)}):
            return to
    return []


def _able(topic: str, body: Mapping[str, Any], users: QuerySet[User]) -> QuerySet[User]:
    if topic == SECOND:
        return _with(ASSIGN, users) | _with(RESOLVE, users)
    if topic == "lead.asked":
        return _with(ASSIGN, users)
    if "whom" in body:
        return users.filter(pk=body["whom"])
    task = ManualTask.objects.filter(pk__in=body["subjects"]).first()
    return users.filter(pk__in=able_to_decide(task).values("pk")) if task else users.none()


def _with(permission: str, users: QuerySet[User]) -> QuerySet[User]:
    able = get_user_model().objects.with_perm(permission, backend=PERMISSION_BACKEND)
    return users.filter(pk__in=able.values("pk"))


def subject(topic: str, body: Mapping[str, Any]) -> str:
    one, many = _WORDS[topic]
    what = one if body["number"] == 1 else many.format(f"{body['number']:,}")
    team = f", team {body['team']}" if body["team"] else ""
    return f"{what}: {plain(body['code']).lower()}{team}"


def text(topic: str, body: Mapping[str, Any]) -> str:
    """The message: ages and links, never a title, a reason or a value."""
    model, keys = ("workflow", body["workflows"]) if topic == SECOND else ("manualtask", body["subjects"])
    rest = body["number"] - len(keys)
    lines = [f"{subject(topic, body)}."]
    lines += [f"The oldest has waited for {length(body['age_seconds'])}."] if body["age_seconds"] else []
    lines += [""]
    lines += [link(f"admin:workflows_{model}_change", key) for key in keys]
    lines += [f"And {rest:,} more: {link('admin:needs_a_person')}"] if rest > 0 else []
    return "\n".join([*lines, "", f"To get no such mail: {link('admin:mail')}", ""])


def link(name: str, *keys: int) -> str:
    """The address of a page of the console; CONSOLE_URL is where it is."""
    console = str(settings.CONSOLE_URL).rstrip("/")
    try:
        return console + reverse(name, args=keys)
    except NoReverseMatch:  # this process has no console
        return console
