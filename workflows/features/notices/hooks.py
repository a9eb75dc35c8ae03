"""Notices in the workers: they store the events, so that nothing rests on the process that acted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from workflows.engine.extension import Feature
from workflows.engine.maintenance import Task
from workflows.features.notices import waiting
from workflows.features.outbox import events
from workflows.features.outbox.destinations import Destination, destinations
from workflows.features.outbox.events import OF_NOTICES
from workflows.signals.waking import Slice


def tell(after: int = 0) -> Slice:
    """Store events for what waits for people, in the slice's transaction."""
    wanted = [each for each in destinations().values() if any(map(each.takes, OF_NOTICES))]
    by_mail = [each for each in wanted if each.email]
    by_event = len(by_mail) < len(wanted)
    if not wanted:
        return Slice(0)
    changed = waiting.notice(by_event=by_event, by_mail=bool(by_mail))
    for group in waiting.untold("told_at"):
        if group.may_be_told(waiting.WINDOW):
            changed += _store(group, "told_at", [each for each in wanted if not each.email])
    for group in waiting.untold("mailed_at"):
        if all(_may_be_mailed(group, each) for each in by_mail):
            changed += _store(group, "mailed_at", by_mail)
    return Slice(changed)


def _may_be_mailed(group: waiting.Group, destination: Destination) -> bool:
    """What is urgent goes at any time; the rest in the team's hours, together."""
    mailing = destination.mailing
    return group.may_be_told(mailing.digest) and (group.is_urgent or mailing.has(group.team, group.now))


def _store(group: waiting.Group, way: str, to: Sequence[Destination]) -> int:
    rows = waiting.take(group, way)
    if rows:
        # An assignee is for mail only: others learn no names.
        whom = {"whom": str(group.whom)} if way == "mailed_at" and group.whom is not None else {}
        names = [each.name for each in to if each.takes(group.topic)]
        key = f"{way} {rows[-1].id} {group.now.isoformat()}"
        body = {**waiting.body(group, rows), **whom}
        events.store(rows[0].workflow_id, group.topic, body, key=key, destinations=names)
    return len(rows)


class Notices(Feature):
    chores: ClassVar[Mapping[str, Task]] = {"tell of what waits": Task(tell, every=5.0)}
