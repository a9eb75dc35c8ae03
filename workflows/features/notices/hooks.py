"""Notices in the workers: they store the events, so that nothing rests on the process that acted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import AT_A_TIME, Task
from workflows.features.notices import waiting
from workflows.features.outbox import events
from workflows.features.outbox.destinations import OF_NOTICES, Destination, destinations
from workflows.signals.waking import Slice


def tell(after: int = 0) -> Slice:
    """Store events for what waits for people, in the slice's transaction."""
    wanted = [each for each in destinations().values() if any(map(each.takes, OF_NOTICES))]
    if not wanted:
        return Slice(0)
    changed = waiting.notice()
    until = monotonic() + AT_A_TIME
    for way in ("told_at", "mailed_at"):
        here = [each for each in wanted if bool(each.email) == (way == "mailed_at")]
        for group in waiting.untold(way) if here else ():
            # Of e-mail one, or none: `destinations`. Without any, another process may have one: it is not told yet.
            to = [each for each in here if each.takes(group.topic)]
            if to and all(_may_be_told(group, each) for each in to):
                changed += _store(group, way, to)
                if monotonic() > until:  # the next slice, at once, goes on
                    return Slice(max(changed, 1))
    return Slice(changed)


def _may_be_told(group: waiting.Group, destination: Destination) -> bool:
    """By e-mail, what is urgent goes at any time; the rest in the team's hours, together."""
    if not destination.email:
        return group.may_be_told(waiting.WINDOW)
    mailing = destination.mailing
    return group.may_be_told(mailing.digest) and (group.is_urgent or mailing.has(group.team, group.now))


def _store(group: waiting.Group, way: str, to: Sequence[Destination]) -> int:
    rows = waiting.take(group, way)
    if rows:
        # An assignee is for mail only: others learn no names.
        whom = {"whom": str(group.whom)} if way == "mailed_at" and group.whom is not None else {}
        key = f"{way} {rows[-1].id} {group.now.isoformat()}"
        body = {**waiting.body(group, rows), **whom}
        events.store(rows[0].workflow_id, group.topic, body, key=key, destinations=[each.name for each in to])
    return len(rows)


class Notices(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"tell of what waits": Task(tell, every=5.0)}
