"""What an API key may do: its rights, and how far they reach."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from time import monotonic

from django.db.models import Q

from workflows.definition import WorkflowDefinition

SUBMIT, READ, SIGNAL = USUAL = ("submit", "read", "signal")
CANCEL, READ_HISTORY = BEYOND = ("cancel", "read-history")
VERBS = USUAL + BEYOND
# What the key of a person may do, in the operator's API, and nothing else.
LOOK, PROPOSE = OPERATOR = ("look", "propose")


class Limit:
    """So many a second, and `at_once` as many, or this number: a token bucket. Each process has its own."""

    def __init__(self, per_second: float, at_once: float = 0.0) -> None:
        self.per_second = per_second
        self._most = self._tokens = max(1.0, at_once or per_second)
        self._counted_at = monotonic()
        self._lock = Lock()

    def seconds_to_wait(self) -> int:
        """Take a token, and return 0; or the seconds until there is one, rounded up."""
        with self._lock:
            now = monotonic()
            self._tokens = min(self._most, self._tokens + (now - self._counted_at) * self.per_second)
            self._counted_at = now
            if self._tokens < 1:
                return ceil((1 - self._tokens) / self.per_second)
            self._tokens -= 1
            return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key that is not revoked, as a process knows it. Empty bounds bound nothing."""

    id: int
    client: str
    tenant: str = ""
    tenant_only: bool = False
    verbs: frozenset[str] = frozenset(USUAL)
    types: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    is_expired: bool = False
    limit: Limit | None = field(default=None, compare=False)

    def may_start(self, definition: WorkflowDefinition) -> bool:
        """Whether workflows of this definition are of its types and queues."""
        return (not self.types or definition.name in self.types) and (
            not self.queues or definition.queue in self.queues
        )

    @property
    def within(self) -> Q:
        """The condition for a workflow's row to be of its types, queues and tenant."""
        within = Q()
        if self.types:
            within &= Q(workflow_type__in=self.types)
        if self.queues:
            within &= Q(queue__in=self.queues)
        if self.tenant_only:
            within &= Q(tenant=self.tenant)
        return within

    def reaches(self, workflow_type: str, tenant: str) -> bool:
        """The same of a deleted workflow, whose queue nobody knows any more."""
        return (not self.types or workflow_type in self.types) and (not self.tenant_only or tenant == self.tenant)
