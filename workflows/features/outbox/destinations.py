"""DESTINATIONS of events, by the setting OUTBOX_DESTINATIONS. No message quotes the setting, because it holds secrets.

{"crm": {"url": "https://crm.example.com/hooks", "secrets": ["whsec_..."], "topics": ["workflow.*", "order.paid"]},
 "lake": {"kafka": "onramp-events", "topics": ["*"]},
 "desk": {"email": "onramp@example.com", "topics": ["task.*", "lead.asked"]}}
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from workflows.features.notices.hours import Mailing
from workflows.ingress.webhooks import key_of
from workflows.models.outbox_event import LONGEST_DESTINATION

# The prefix of the names of their circuits (`workflows.outages`).
SERVICES = "outbox "
# The topics of `features.notices`.
OF_NOTICES: tuple[str, ...] = ("task.opened", "task.assigned", "task.due_soon", "task.overdue")
OF_NOTICES += ("reversal.failed", "lead.asked", "team.asked", "pause.overdue", "second_person.wanted")
_FIELDS = {"url", "secrets", "kafka", "topics", "email", "digest_minutes", "hours"}


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination of events whose topic matches one of `topics`: a webhook (`url`, `keys`), a topic of `kafka`, or
    e-mail from the address `email`, as `mailing` says.
    """

    name: str
    topics: tuple[str, ...]
    url: str = ""
    keys: tuple[bytes, ...] = ()
    kafka: str = ""
    email: str = ""
    mailing: Mailing = field(default_factory=Mailing)

    @property
    def service(self) -> str:
        """The name of its circuit."""
        return f"{SERVICES}{self.name}"

    def takes(self, topic: str) -> bool:
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)

    def __repr__(self) -> str:
        return f"<Destination {self.name}>"


def destinations() -> Mapping[str, Destination]:
    """All destinations by name. Raises ImproperlyConfigured if the setting is wrong."""
    return _read(settings.OUTBOX_DESTINATIONS, settings.DEBUG)


def taking(topic: str) -> list[str]:
    """The names of the destinations that take a topic, but those of e-mail, which only `features.notices` writes to."""
    return [each.name for each in destinations().values() if each.takes(topic) and not each.email]


@lru_cache(maxsize=8)
def _read(text: str, debug: bool) -> Mapping[str, Destination]:
    try:
        said = json.loads(text or "{}")
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ImproperlyConfigured("OUTBOX_DESTINATIONS is not a JSON object: see docs/outbox.md.")
    read = {name: _destination(name, each, debug) for name, each in said.items()}
    for topic in OF_NOTICES:
        if len(twice := [each.name for each in read.values() if each.email and each.takes(topic)]) > 1:
            raise ImproperlyConfigured(f"OUTBOX_DESTINATIONS: of {' and '.join(twice)} only one may mail {topic}.")
    return read


def _destination(name: str, said: Any, debug: bool) -> Destination:
    def refuse(why: str) -> ImproperlyConfigured:
        return ImproperlyConfigured(f"The destination {name[:80]!r} of OUTBOX_DESTINATIONS {why}")

    if not re.fullmatch(rf"[a-z0-9][a-z0-9_-]{{0,{LONGEST_DESTINATION - 1}}}", name):
        raise refuse("has no valid name: lower-case letters, digits and _ -.")
    if (
        not isinstance(said, dict)
        or said.keys() - _FIELDS
        or sum(way in said for way in ("url", "kafka", "email")) != 1
    ):
        raise refuse("has the fields topics, and either url and secrets, or kafka, or email; and no others.")
    topics, url, kafka, secrets = (said.get(field) for field in ("topics", "url", "kafka", "secrets"))
    if not _are_texts(topics) or not topics:
        raise refuse('says no topics: ["*"] for all.')
    if "kafka" in said:
        if not isinstance(kafka, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", kafka):
            raise refuse("names no valid topic of Kafka.")
        return Destination(name, tuple(topics), kafka=kafka)
    if "email" in said:
        try:
            return Destination(name, tuple(topics), email=said["email"], mailing=Mailing.of(said))
        except ValueError as error:
            raise refuse(str(error)) from None
    if not isinstance(url, str) or (why := _why_no_address(url, debug)):
        raise refuse(why if isinstance(url, str) else "has an url that is not text.")
    try:
        keys = tuple(map(key_of, secrets)) if _are_texts(secrets) else ()
    except ValueError as error:
        raise refuse(f"has a wrong secret. {error}") from None
    if not keys:
        raise refuse("has no secrets: what is sent is always signed.")
    return Destination(name, tuple(topics), url=url, keys=keys)


def _are_texts(values: Any) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _why_no_address(url: str, debug: bool) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "has an url that cannot be read."
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable() or " " in url:
        return "has an url that is not an address of a web server."
    if parts.username or parts.password or parts.fragment:
        return "has an url with a user, a password or a fragment: what is sent is signed."
    if parts.scheme == "http" and not debug and not _is_loopback(host):
        return "has an url that is not https."
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
