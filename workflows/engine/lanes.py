"""LANES: which workflow a worker starts next, when it is not simply the oldest.

A lane is the workflows of one priority, type and tenant that have not started; they are adjacent in the index. So a
worker skips a held or paced lane, or a tenant with 100,000 workflows, without reading their rows. While nothing is
limited, and only one tenant and priority has something due, lanes are not used: the oldest goes first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from time import monotonic
from typing import NamedTuple

from workflows.engine.turns import Turns
from workflows.models import Workflow
from workflows.models.pace import Key, Scope
from workflows.models.workflow import PAUSED
from workflows.postgres.places import taking
from workflows.postgres.round_trips import session_of
from workflows.postgres.skip_scan import skip_scan
from workflows.signals.waking import Slice
from workflows.state.transitions import make_due_where

# Seconds between reads of holds, paces and caps: with a rest in between, a change takes effect within two.
READ_EVERY = 1.0
# Minimum seconds between looks for lanes when a worker has none left.
LOOK_EVERY = 0.05
# The most lanes to look for: 7 us each, a step down the index. For 10,000 a look takes 70 ms, and a turn 5 ms more.
MOST_LANES = 10_000
# The attempts to search for workflows that lost their worker: open ones first (their host may be gone), then those that
# were closed last.
NEWEST = 1_000
# Every tenth start ignores the priority, so that the highest priority does not starve the others.
ANY_PRIORITY_EVERY = 10


_QUEUE, _SERVICE = f"{Scope.QUEUE}:", f"{Scope.SERVICE}:"


class Lane(NamedTuple):
    priority: int
    workflow_type: str
    tenant: str


_READ = """SELECT key, coalesce(held_until > clock_timestamp(), false), per_second, at_once FROM workflows_pace
            WHERE held_until > clock_timestamp() OR per_second IS NOT NULL OR at_once IS NOT NULL"""

# Take a place under each cap, until the claim ends, with its worker if need be. No row counts the places.
_TAKE_PLACES = f"""SELECT ({taking("pg_try_advisory_xact_lock", "key", "at_once")}) IS NOT NULL
                     FROM unnest(%(keys)s::text[], %(at_once)s::int[]) cap (key, at_once)"""  # noqa: S608 (ours)

_FRESH = "status = 'PENDING' AND NOT begun AND queue = %(queue)s"
_LANES = f"""
    WITH RECURSIVE {skip_scan("lanes", "workflows_workflow", _FRESH, *Lane._fields, downward=True)}
    SELECT priority, workflow_type, tenant FROM lanes
     WHERE 'type:' || workflow_type <> ALL (%(held)s) AND 'tenant:' || tenant <> ALL (%(held)s)
       AND EXISTS (SELECT FROM workflows_workflow w
                    WHERE {_FRESH} AND w.priority = lanes.priority AND w.workflow_type = lanes.workflow_type
                      AND w.tenant = lanes.tenant AND invisible_until <= now())
     LIMIT %(most)s"""  # noqa: S608 (ours)


# A workflow whose worker was lost before it decided still counts as not started, because a death writes nothing.
_LEFT = f"""NOT w.begun AND w.waiting_for <> '{PAUSED}'
    AND EXISTS (SELECT FROM workflows_pace WHERE held_until > clock_timestamp()) AND w.id IN (
    SELECT workflow_id FROM (
        SELECT DISTINCT ON (workflow_id) workflow_id, outcome
          FROM (SELECT id, workflow_id, outcome FROM workflows_attempt ORDER BY closed_xid DESC LIMIT {NEWEST}) newest
         ORDER BY workflow_id, id DESC) last
     WHERE outcome IN ('', 'lost', 'vanished', 'crashed', 'killed', 'interrupted', 'put_back'))"""  # noqa: S608 (ours)


def go_on(after: int = 0) -> Slice:
    """Maintenance: during a hold, make due the workflows that had begun and lost their worker."""
    return Slice(make_due_where(_LEFT, ()))


class Lanes:
    """One worker's knowledge of the lanes of one queue."""

    def __init__(self, queue: str) -> None:
        self.turns = Turns()
        self._queue = queue
        self._key = str(Key(Scope.QUEUE, queue))
        self._held: set[str] = set()
        self._paces: dict[str, float] = {}
        self._caps: dict[str, int] = {}
        self._read_at = self._looked_at = float("-inf")
        self._due: dict[Lane, None] = {}
        self.service_caps: dict[str, int] = {}
        self._begun = 0  # by this worker, in lanes
        self._turn = 0
        self._last: dict[str | Lane, int] = defaultdict(int)  # the last turn of each tenant and each lane

    def read(self) -> None:
        """Read the holds, paces and caps, once a second. Those of other queues do not matter here."""
        if monotonic() < self._read_at + READ_EVERY:
            return
        self._read_at = monotonic()
        rows = session_of().run(_READ, {})
        services = {key: at_once for key, _, _, at_once in rows if key.startswith(_SERVICE)}
        self.service_caps = {key.removeprefix(_SERVICE): at_once for key, at_once in services.items()}
        rows = [row for row in rows if row[0] == self._key or not row[0].startswith((_QUEUE, _SERVICE))]
        was_held, self._held = self._held, {key for key, held, _, _ in rows if held}
        self._paces = {key: pace for key, _, pace, _ in rows if pace is not None}
        self._caps = {key: at_once for key, _, _, at_once in rows if at_once is not None}
        if was_held - self._held:
            self.look()

    def look(self) -> None:
        """Find the lanes with something due that are not held: `MOST_LANES` at most, those of the highest priorities.

        So held lanes keep no other from beginning, however many there are.
        """
        self._looked_at = monotonic()
        found = session_of().run(_LANES, {"queue": self._queue, "most": MOST_LANES, "held": list(self._held)})
        self._due = {Lane(*row): None for row in found}

    @property
    def are_used(self) -> bool:
        """Whether workflows are started by lane."""
        if self._is_limited or len(self._due) < 2:
            return self._is_limited
        return len({(each.priority, each.tenant) for each in self._due}) > 1

    @property
    def _is_limited(self) -> bool:
        return bool(self._held or self._paces or self._caps)

    def in_order(self) -> Iterator[Lane]:
        """While lanes are used, yield the lanes that may start a workflow, each once, the next first."""
        if self._key in self._held:
            return
        if self._is_limited and not self.may_begin() and monotonic() >= self._looked_at + LOOK_EVERY:
            self.look()
        by_priority = (self._begun + 1) % ANY_PRIORITY_EVERY != 0
        last = self._last
        order = sorted(self._due, key=lambda lane: (-lane.priority * by_priority, last[lane.tenant], last[lane]))
        for lane in order:
            if not self.are_used:
                return
            if lane in self._due and self._may_begin(lane):
                yield lane

    def may_begin(self) -> bool:
        """Whether one of the remaining lanes may start a workflow."""
        return any(map(self._may_begin, self._due))

    def _may_begin(self, lane: Lane) -> bool:
        keys = list(self._keys(lane))
        paced = ((key, self._paces[key]) for key in keys if key in self._paces)
        return self._held.isdisjoint(keys) and all(self.turns.has(key, pace) for key, pace in paced)

    def _keys(self, lane: Lane) -> Iterator[str]:
        """The pace keys that limit the lane; the likeliest limit first."""
        yield str(Key(Scope.TENANT, lane.tenant))
        yield str(Key(Scope.TYPE, lane.workflow_type))
        yield self._key

    def is_capped(self, lane: Lane) -> bool:
        return not self._caps.keys().isdisjoint(self._keys(lane))

    def take_places(self, lane: Lane) -> dict[str, bool]:
        """Take a place under each cap of the lane, until the claim ends; False for each cap that is full."""
        caps = {key: self._caps[key] for key in self._keys(lane) if key in self._caps}
        asked = {"keys": list(caps), "at_once": list(caps.values())}
        taken = session_of().run(_TAKE_PLACES, asked)
        return {key: is_taken for key, (is_taken,) in zip(caps, taken, strict=True)}

    def go_on_with(self, workflow: Workflow) -> None:
        """A started workflow goes on even if a cap is full, and takes a place if there is one."""
        if self._caps:
            self.take_places(Lane(workflow.priority, workflow.workflow_type, workflow.tenant))

    def begin(self, lane: Lane) -> None:
        self._begun += 1
        self._end_turn_of(lane)
        for key in self._keys(lane):
            if key in self._paces:
                self.turns.use(key)

    def leave_out(self, lane: Lane, full: Collection[str] = ()) -> None:
        """Skip the lane, and other lanes under its `full` caps, until the next look."""
        self._due = {each: None for each in self._due if each != lane and not self._is_under(full, each)}
        self._end_turn_of(lane)

    def _is_under(self, keys: Collection[str], lane: Lane) -> bool:
        return bool(keys) and not set(keys).isdisjoint(self._keys(lane))

    def _end_turn_of(self, lane: Lane) -> None:
        """The lane has started a workflow, or could not: others come before it now."""
        self._turn += 1
        self._last[lane.tenant] = self._last[lane] = self._turn
