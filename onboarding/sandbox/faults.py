"""Faults: what goes wrong on purpose. POST /_faults adds one; they are stored on disk like everything else."""

from __future__ import annotations

import random
import threading
from collections import deque
from time import monotonic
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from onboarding.sandbox.services import OPERATIONS, Refused
from onboarding.sandbox.store import Store


class Fault(BaseModel):
    """A fault as it is asked for. It strikes `rate` of the matching requests, `count` times, or for ever.

    It matches a service, one of its operations (None: all), and keys that start with `idempotency_key`; if it names the
    operation, also the key that a lookup asks about.
    - status: answers without performing, with the error `code` if given.
    - capacity: lets `per_second` calls through in any one second; answers the others with 503, without performing.
    - silent: accepts the request, and neither performs nor answers it.
    - slow: waits `delay_s` before performing.
    - timeout_after, drop_after, half: performs, then never answers, cuts the connection, or sends half of the body.
    - replay_500: answers this key with 500, now and every time it comes back, without performing.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    service: str
    operation: str | None = None
    idempotency_key: str = ""
    kind: Literal["status", "capacity", "silent", "slow", "timeout_after", "drop_after", "half", "replay_500"]
    status: int | None = Field(default=None, ge=400, le=599)
    code: str = ""
    per_second: int | None = Field(default=None, ge=1)
    delay_s: float | None = Field(default=None, ge=0, le=3600)
    rate: float = Field(default=1.0, ge=0, le=1)
    count: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Fault:
        if self.kind == "status" and self.status is None:
            raise ValueError("kind status needs a status from 400 to 599")
        if self.kind == "capacity" and self.per_second is None:
            raise ValueError("kind capacity needs per_second, the calls that it lets through")
        if self.kind == "slow" and self.delay_s is None:
            raise ValueError("kind slow needs delay_s, in seconds")
        return self


class ArmedFault(Fault):
    """An active fault. One that has struck `count` times stays listed, to show that it did."""

    id: int
    fired: int = 0
    _let_through: deque[float] = PrivateAttr(default_factory=deque)  # times of the last second's calls, for a capacity

    @property
    def spent(self) -> bool:
        return self.count is not None and self.fired >= self.count

    def concerns(self, service: str, operation: str, idempotency_key: str, looked_up: str) -> bool:
        of_service = self.service == service and self.operation in (None, operation)
        key = idempotency_key or (looked_up if self.operation else "")
        return of_service and key.startswith(self.idempotency_key)

    def lets_through(self, now: float) -> bool:
        """Whether a call at `now` (seconds, monotonic) is within the capacity. If so, it is counted.

        The second slides: with whole seconds, twice as many calls could pass around the turn of a second. A refused
        call is not counted, or a client that comes too often would never get in.
        """
        if self.per_second is None:
            return False
        while self._let_through and now - self._let_through[0] >= 1:
            self._let_through.popleft()
        if len(self._let_through) >= self.per_second:
            return False
        self._let_through.append(now)
        return True


class FaultBook:
    """The active faults. A request gets the first one that matches and strikes."""

    def __init__(self, store: Store, seed: int | None = None) -> None:
        self._store = store
        self._random = random.Random(seed)  # noqa: S311
        self._lock = threading.Lock()
        self._faults = [ArmedFault.model_validate(data) for data in store.all("fault")]
        self._last_id = max((fault.id for fault in self._faults), default=0)

    def add(self, asked: Any) -> ArmedFault:
        fault = _validated(asked)
        with self._lock:
            self._last_id += 1
            armed = ArmedFault(id=self._last_id, **fault.model_dump())
            self._faults.append(armed)
            self._keep(armed)
        return armed

    def lift(self, id: str) -> ArmedFault:
        """Remove one fault, and return it. Keys that always get 500 stay so."""
        with self._lock:
            for fault in self._faults:
                if str(fault.id) == id:
                    self._faults.remove(fault)
                    self._store.delete("fault", _record_id(fault))
                    return fault
        raise Refused(404, "no_such_fault")

    def clear(self) -> None:
        """Remove all faults, and free the keys that always get 500."""
        with self._lock:
            self._faults.clear()
            self._store.clear("fault")
            self._store.clear("stuck_key")

    def all(self) -> list[dict[str, Any]]:
        with self._lock:
            return [fault.model_dump() for fault in self._faults]

    def strike(self, service: str, operation: str, idempotency_key: str, looked_up: str = "") -> Fault | None:
        """Return the fault for this request, if any, and count it. `looked_up` is the key that a lookup asks about."""
        if not self._faults:
            return None
        with self._lock:
            stuck_key = f"{service} {idempotency_key}"
            if idempotency_key and (stuck := self._store.get("stuck_key", stuck_key)):
                return ArmedFault.model_validate(stuck)
            for fault in self._faults:
                if fault.spent or not fault.concerns(service, operation, idempotency_key, looked_up):
                    continue
                if self._random.random() >= fault.rate or fault.lets_through(monotonic()):
                    continue
                fault.fired += 1
                self._keep(fault)
                if fault.kind == "replay_500" and idempotency_key:
                    self._store.put("stuck_key", stuck_key, fault.model_dump())
                return fault
        return None

    def _keep(self, fault: ArmedFault) -> None:
        self._store.put("fault", _record_id(fault), fault.model_dump())


def _validated(asked: Any) -> Fault:
    try:
        fault = Fault.model_validate(asked)
    except ValidationError as error:
        detail = error.errors()[0]
        reason = ": ".join([*map(str, detail["loc"]), detail["msg"].removeprefix("Value error, ")])
        raise Refused(400, "bad_fault", reason) from None
    if fault.service not in OPERATIONS:
        raise Refused(400, "bad_fault", f"service: one of {', '.join(OPERATIONS)}")
    known = OPERATIONS[fault.service]
    if fault.operation is not None and fault.operation not in known:
        raise Refused(400, "bad_fault", f"operation: null for all, or one of {', '.join(sorted(known))}")
    return fault


def _record_id(fault: ArmedFault) -> str:
    return f"{fault.id:09}"  # the records are read in this order
