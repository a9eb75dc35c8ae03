"""MAIL about what waits for people, through Django's e-mail backend: https://docs.djangoproject.com/en/5.2/topics/email/

Each event is one message, to all who may act (in `bcc`: they do not learn of each other).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import mail
from django.core.exceptions import ValidationError
from django.core.mail import EmailMessage
from django.core.validators import validate_email
from django.db.models import Q, QuerySet
from django.urls import NoReverseMatch, reverse

from workflows.features.notices.waiting import SECOND, of_feature
from workflows.features.outbox.destinations import Destination
from workflows.features.outbox.sending import NO_ANSWER, SENT, UNTRIED, Outcome, Taken
from workflows.models import ManualTask, MutedMail
from workflows.models.deputy import away
from workflows.models.manual_task import ASSIGN, PERMISSION_BACKEND, able_to_decide
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.telling import words
from workflows.wording import length

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# Seconds for each answer of the mail server, and for a whole message: less than the relay's lease, so that no other
# relay sends it meanwhile.
PATIENCE, TOTAL = 5.0, 20.0
# A server takes at least so many recipients at a time; it may refuse the others, and `smtplib` would not tell us.
# https://www.rfc-editor.org/rfc/rfc5321#section-4.5.3.1.8
RECIPIENTS = 100
NOBODY = Outcome("nobody who may act has an e-mail address", is_service=False)
# The subject for one, and for many.
_WORDS = {
    "task.opened": ("A task waits", "{} tasks wait"),
    "task.assigned": ("A task is assigned to you", "{} tasks are assigned to you"),
    "task.due_soon": ("A task is due within the hour", "{} tasks are due within the hour"),
    "task.overdue": ("A task is overdue", "{} tasks are overdue"),
    "reversal.failed": ("A reversal failed", "{} reversals failed"),
    "lead.asked": ("A lead is asked for help", "A lead is asked for help {} times"),
    "team.asked": ("A workflow is handed to a team", "{} workflows are handed to a team"),
    "pause.overdue": ("A pause is overdue", "{} pauses are overdue"),
    SECOND: ("A second person is wanted", "A second person is wanted for {} requests"),
}


class Mail:
    """Sends events as e-mail, one at a time: each has the whole lease."""

    at_once = 1

    def __init__(self, destination: Destination, *, total: float = TOTAL) -> None:
        self._destination, self._total = destination, total

    def send(self, events: Sequence[Taken], must_not_begin: Callable[[], bool]) -> Sequence[Outcome]:
        return [UNTRIED if must_not_begin() else self._outcome(each) for each in events]

    def close(self) -> None: ...

    def _outcome(self, event: Taken) -> Outcome:
        until = monotonic() + self._total
        try:
            return self._send(event, until)
        except DatabaseUnavailable:
            return UNTRIED
        except Exception as error:  # a backend may raise anything
            return NO_ANSWER if monotonic() >= until else Outcome(type(error).__name__)

    def _send(self, event: Taken, until: float) -> Outcome:
        body = json.loads(event.body)
        to = query_in_time(lambda: addresses(event.topic, body))
        if not to:
            return NOBODY
        connection = _backend()
        watch = Timer(until - monotonic(), _shut, [connection])
        watch.daemon = True
        watch.start()
        try:
            connection.open()
            for first in range(0, len(to), RECIPIENTS):
                if monotonic() >= until:
                    raise TimeoutError
                message = EmailMessage(
                    subject(event.topic, body),
                    text(event.topic, body),
                    self._destination.email,
                    bcc=to[first : first + RECIPIENTS],
                    headers={"Message-ID": f"<{event.event_id}@onramp>", "Auto-Submitted": "auto-generated"},
                )
                connection.send_messages([message])
        finally:
            watch.cancel()
            connection.close()
        return SENT


def _backend() -> Any:
    """The project's backend: since Django 6.1 that of MAILERS, if it has them. It waits for PATIENCE at most."""
    if hasattr(settings, "MAILERS") and hasattr(mail, "mailers"):
        backend = mail.mailers.default
    else:
        backend = mail.get_connection()
    if hasattr(backend, "timeout"):
        backend.timeout = PATIENCE
    return backend


def _shut(backend: Any) -> None:
    """Shut the socket of Django's SMTP backend: reads and writes in another thread end."""
    if sock := getattr(getattr(backend, "connection", None), "sock", None):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed already
            return


def addresses(topic: str, body: Mapping[str, Any]) -> list[str]:
    """The addresses of the people who may act; of all of them if each wants no mail; or of those who can help.

    Who is away gets none, unless nobody else is left.
    """
    users = get_user_model().objects.filter(is_active=True, is_staff=True).exclude(email="")
    muted, absent = Q(pk__in=MutedMail.objects.values("pk")), Q(pk__in=away())
    able = _able(topic, body, users)
    helpers = (able, _with(ASSIGN, users), users.filter(is_superuser=True))
    to: set[str] = set()
    for found in (able.exclude(muted | absent), *(each.exclude(absent) for each in helpers), *helpers):
        to |= {each for each in found.values_list("email", flat=True) if _is_address(each)}
        if len(to) > (topic == SECOND):  # a single one may be the first person
            break
    return sorted(to)


def _is_address(email: str) -> bool:
    """Whether it can be sent to. One that is wrong would keep the message from all others, too."""
    try:
        validate_email(email)
    except ValidationError:
        return False
    return True


def _able(topic: str, body: Mapping[str, Any], users: QuerySet[User]) -> QuerySet[User]:
    if found := of_feature(topic, body["code"]):
        among = users.filter(groups__name=body["team"]) if found.of_teams else users
        return reduce(or_, (_with(each, among) for each in found.permissions))
    if topic == "lead.asked":
        return _with(ASSIGN, users)
    subjects = ManualTask.objects.filter(pk__in=body["subjects"])
    if "whom" in body and subjects.filter(assignee=body["whom"]).exists():
        return users.filter(pk=body["whom"])
    # Four eyes: one who may not decide one of them may decide another's.
    eyes = ("four_eyes", "requested_by")
    tasks = subjects.order_by(*eyes).distinct(*eyes)[:2]
    may = reduce(or_, (users.filter(pk__in=able_to_decide(each).values("pk")) for each in tasks), users.none())
    return may.filter(pk=body["whom"]) if "whom" in body else may  # a deputy, who may have lost the right


def _with(permission: str, users: QuerySet[User]) -> QuerySet[User]:
    able = get_user_model().objects.with_perm(permission, backend=PERMISSION_BACKEND)
    return users.filter(pk__in=able.values("pk"))


def subject(topic: str, body: Mapping[str, Any]) -> str:
    one, many = _WORDS[topic]
    what = one if body["number"] == 1 else many.format(f"{body['number']:,}")
    team = f", team {body['team']}" if body["team"] else ""
    return " ".join(f"{what}: {words.task_type(body['code']).lower()}{team}".split())  # a line break is no header's


def text(topic: str, body: Mapping[str, Any]) -> str:
    """The message: ages and links, never a title, a reason or a value."""
    found = of_feature(topic, body["code"])
    model = found.model if found else "manualtask"
    keys = body["subjects"] if model else body["workflows"]
    rest = body["number"] - len(keys)
    lines = [f"{subject(topic, body)}."]
    lines += [f"The oldest has waited for {length(body['age_seconds'])}."] if body["age_seconds"] else []
    lines += ["It is with you, or with a colleague for whom you stand in."] if topic == "task.assigned" else []
    lines += [""]
    lines += [link(f"admin:workflows_{model or 'workflow'}_change", key) for key in keys]
    lines += [f"And {rest:,} more: {link('admin:needs_a_person')}"] if rest > 0 else []
    return "\n".join([*lines, "", f"To get no such mail: {link('admin:mail')}", ""])


def link(name: str, *keys: int) -> str:
    """The address of a page of the console; CONSOLE_URL is where it is."""
    console = str(settings.CONSOLE_URL).rstrip("/")
    try:
        return console + reverse(name, args=keys)
    except NoReverseMatch:  # this process has no console
        return console
