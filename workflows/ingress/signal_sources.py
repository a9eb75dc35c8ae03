"""SOURCES of signals with a form of their own: how their events are verified and mapped to signals.

A project declares each in a few lines and lists it in `settings.SIGNAL_SOURCES` (docs/api.md, "Events of others"). An
event comes to `/v1/signals/<name>`, or in a topic of Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DataError, Error
from django.utils.module_loading import import_string

from workflows.ingress import signal_bodies
from workflows.ingress.signal_bodies import NoSuchWorkflow, SignalBody, UnsupportedMediaType
from workflows.ingress.verifying import Verifier
from workflows.models.undelivered_message import WEBHOOK
from workflows.postgres import jsonb
from workflows.postgres.jsonb import Document, InputRefused, document_of, ensure_storable
from workflows.postgres.statements import fetch_one

logger = logging.getLogger(__name__)

# Headers that are not stored, because they are credentials.
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class Received:
    """An event as it came. `headers` are by lower-case name, without those that prove the sender."""

    headers: Mapping[str, str]
    body: bytes
    headers_are_covered: bool  # whether the headers are as surely the source's as the body is
    is_percent_encoded: bool = True  # in HTTP; Kafka's headers are UTF-8

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


@dataclass(frozen=True, slots=True)
class Event:
    """An event as a declaration's functions read it: `event.body["type"]`, `event.headers["x-github-event"]`."""

    headers: Mapping[str, str]
    document: Document

    @property
    def body(self) -> dict[str, Any]:
        return self.document.value


def read_json(received: Received) -> Document:
    """The body, which must be a JSON object. Raises InputRefused."""
    if received.media_type not in ("", "application/json"):
        raise UnsupportedMediaType("Send the body as Content-Type: application/json.")
    return jsonb.parse(received.body)


def digest_of_body(event: Event) -> str:
    """An id for events whose signed part has none: the same bytes are the same event."""
    return sha256(event.document.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SignalSource:
    """How the events of a source become signals.

    `verify`: who may send to `/v1/signals/<name>`; None for a `topic` of Kafka, whose broker decides who may write.
    `signal`: the signal's name. A function may return None for an event without use, which is then ignored. `id`: the
    same each time that an event is sent, and different for each event: it stores a signal only once. One of
    `linking_id`, `workflow` (its idempotency key) and `business_key` is the address. A business key belongs to a
    workflow of `workflow_type` and `tenant`. `payload`: what the step gets; by default the whole event.

    If a function raises an error, or returns an invalid value, the event becomes an undelivered message, for a person.
    """

    name: str
    _: KW_ONLY
    signal: Callable[[Event], str | None] | str
    id: Callable[[Event], str]
    verify: Verifier | None = None
    topic: str = ""
    linking_id: Callable[[Event], str] | None = None
    workflow: Callable[[Event], str] | None = None
    business_key: Callable[[Event], str] | None = None
    workflow_type: str = ""
    tenant: str = ""
    payload: Callable[[Event], Mapping[str, Any]] | None = None
    read: Callable[[Received], Document] = read_json

    @property
    def covers_headers(self) -> bool:
        return self.verify is None or self.verify.covers_headers

    def received(self, headers: Mapping[str, str], body: bytes) -> Received:
        secret = _SECRET_HEADERS | set(self.verify.secret_headers if self.verify else ())
        kept = {name.lower(): value for name, value in headers.items() if name.lower() not in secret}
        return Received(kept, body, self.covers_headers, is_percent_encoded=self.verify is not None)

    def told(self, received: Received) -> tuple[str, SignalBody] | None:
        """The id and the signal of an event; None for one without use. Raises InputRefused, even for our own errors."""
        event = Event(received.headers, self.read(received))
        try:
            name = self.signal if isinstance(self.signal, str) else self.signal(event)
            if name is None:
                return None
            mapped = {"name": name, "id": self.id(event)}
            for field in ("linking_id", "workflow", "business_key"):
                if find := getattr(self, field):
                    mapped[field] = find(event)
            payload = event.document if self.payload is None else self._storable(self.payload(event))
            ensure_storable(mapped)
        except Exception as error:
            is_away = isinstance(error, Error) and not isinstance(error, DataError)
            if isinstance(error, InputRefused) or is_away:  # not the declaration's fault
                raise
            logger.error("The event of %s cannot be mapped", self.name, exc_info=error)
            detail = f"The declaration of {self.name} raised {type(error).__name__} for it: see the log."
            raise InputRefused("not_mappable", detail) from None
        return _valid_id(mapped.pop("id")), self._body(mapped, payload)

    def _storable(self, payload: Mapping[str, Any]) -> Document:
        ensure_storable(dict(payload))
        return document_of(payload)

    def _body(self, mapped: dict[str, Any], payload: Document) -> SignalBody:
        if "business_key" in mapped:
            mapped["workflow"] = str(self._workflow_of(mapped.pop("business_key")))
        fields = document_of(mapped)
        return SignalBody(signal_bodies.name_of(fields), *signal_bodies.address_of(fields), payload)

    def _workflow_of(self, business_key: object) -> UUID:
        if not isinstance(business_key, str) or not 0 < len(business_key) <= 200:
            raise InputRefused("business_key_invalid", "The business key is a text of 1 to 200 characters.")
        row = fetch_one(
            """SELECT idempotency_key FROM workflows_workflow
                WHERE business_key = %s AND workflow_type = %s AND tenant = %s""",
            (business_key, self.workflow_type, self.tenant),
        )
        if row is None:
            raise NoSuchWorkflow
        key: UUID = row[0]
        return key


def sources() -> list[SignalSource]:
    """The declarations in `settings.SIGNAL_SOURCES`."""
    return [import_string(path) for path in settings.SIGNAL_SOURCES]


def of_name(name: str) -> SignalSource | None:
    """The declared source of webhooks with this name."""
    return next((source for source in sources() if source.name == name and source.verify), None)


def of_topic(topic: str) -> SignalSource | None:
    """The declared source of a topic's events, or of stored webhooks with such a topic (`WEBHOOK`)."""
    if not topic.startswith(WEBHOOK):
        return next((source for source in sources() if source.topic == topic), None)
    source = of_name(topic.removeprefix(WEBHOOK))
    if source is None:
        raise InputRefused("source_unknown", "This release declares no such source: see SIGNAL_SOURCES.")
    return source


def _valid_id(given: object) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= 200 or not given.isprintable():
        raise InputRefused("id_invalid", "The id of an event is printable text of 1 to 200 characters.")
    return given
