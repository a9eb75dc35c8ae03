"""Workflows a second while old ones are emptied and deleted beside them, beside the same drain by itself."""

from __future__ import annotations

from functools import partial

from tests.benchmark.claim import EXPLAINED, FIRST, FULL
from tests.benchmark.database import Database
from tests.benchmark.drain import PATIENCE, PATIENCE_PER_WORKFLOW
from tests.benchmark.findings import Finding, Report, in_turns, ratios
from tests.benchmark.inside import Inside
from tests.benchmark.setting import Setting

# Of its speed a drain keeps at least so much, and a claim reads at most so many times the pages.
KEEPS, PAGES_GOAL = 0.9, 1.2
# As many workflows as are asked for: a slice of a purge rests for half a second.
TIMES = 5

# Half is to be emptied, half was emptied long ago and is to be deleted. The oldest ones have all that belongs to them.
_OLD = """
    INSERT INTO workflows_workflow (
           id, idempotency_key, workflow_type, payload, status, begun, created_at, completed_at, emptied_at)
    SELECT n, gen_random_uuid(), 'no_ops', '{"name": "Ann"}', 'COMPLETE', true, at, at,
           CASE WHEN mod(n, 2) = 0 THEN at + interval '90 days' END
      FROM generate_series(%(first)s, %(last)s) n,
           LATERAL (SELECT now() - CASE WHEN mod(n, 2) = 0 THEN interval '600 days' ELSE interval '150 days' END
                           + n * interval '1 second') each (at)"""
_FULL = 100_000
_OF_EACH = """
    INSERT INTO workflows_attempt (workflow_id, number, worker, opened_at, closed_at, outcome)
    SELECT n, 1, 'host:1', now(), now(), 'complete' FROM generate_series(%(first)s, %(last)s) n;
    INSERT INTO workflows_event (workflow_id, at, kind, attempt, detail)
    SELECT n, now(), 'completed', 1, '{}' FROM generate_series(%(first)s, %(last)s) n;
    INSERT INTO workflows_effect (workflow_id, step, state, idempotency_key, attempt, result, settled_at, settled_by)
    SELECT n, step, 'done', n || ':' || step, 1, '{"reference": "made-up"}', now(), 'call'
      FROM generate_series(%(first)s, %(last)s) n, unnest(ARRAY['step_1', 'step_2', 'step_3']) step"""
_RATE = """
    SELECT (count(*) - 1) / extract(epoch FROM max(completed_at) - min(completed_at))
      FROM workflows_workflow WHERE id > %s"""
# What is still to be done of the old ones: it is less by one for each that is emptied, or deleted.
_LEFT = "SELECT clock_timestamp(), 2 * count(*) - count(emptied_at) FROM workflows_workflow WHERE id <= %s"
# A time further ahead would be taken for that of a clock that was set back.
_DUE = """
    INSERT INTO workflows_chore (name, due_at)
    SELECT name, now() + make_interval(secs => %s) FROM unnest(ARRAY['empty old', 'delete old']) name
        ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at"""
_NOT_YET = 110


def report(setting: Setting) -> Report:
    database, sizes = setting.database, setting.sizes
    database.begin_anew()
    database.fill("old workflows", sizes.finished, _OLD)
    database.fill("what belongs to them", min(_FULL, sizes.finished), _OF_EACH)
    database.execute("SELECT setval(pg_get_serial_sequence('workflows_workflow', 'id'), %s)", sizes.finished)
    database.analyze()
    with Inside(database.url, "tests.benchmark.worker:claims") as claims:
        before = _pages(database, claims, sizes.claims)
        drains = {name: partial(_drain, setting, due) for name, due in (("beside it", 0), ("alone", _NOT_YET))}
        rounds = in_turns(drains, sizes.rounds, "drain beside a purge")
        after = _pages(database, claims, sizes.claims)
    speeds = {name: [each[name][0] for each in rounds] for name in drains}
    found = [
        *(Finding("purge", f"drain {name}", speed, "workflows/s") for name, speed in speeds.items()),
        Finding("purge", "drain beside it / alone", ratios(*speeds.values()), at_least=KEEPS),
        Finding("purge", "emptied or deleted meanwhile", [each["beside it"][1] for each in rounds], "/s"),
        Finding("purge", "pages of a claim after / before", [after / before], at_most=PAGES_GOAL),
    ]
    return Report(f"{sizes.finished:,} old workflows", found, {"rounds": rounds, "pages": [before, after]})


def _pages(database: Database, claims: Inside, count: int) -> float:
    """Of the worst claim."""
    database.submit("plain", FULL + FIRST + count + EXPLAINED)
    database.execute("ANALYZE workflows_workflow")
    pages: float = claims(count)["claim"][0]
    return pages


def _drain(setting: Setting, due: float) -> tuple[float, float]:
    """Workflows a second, and old ones that were emptied or deleted a second meanwhile."""
    database, old, count = setting.database, setting.sizes.finished, TIMES * setting.sizes.workflows
    last = database.ask("SELECT max(id) FROM workflows_workflow")
    database.submit("no_ops", count)
    began, before = database.row(_LEFT, old)
    database.execute(_DUE, due)
    with setting.working("--drain") as worker:
        worker.wait(PATIENCE + PATIENCE_PER_WORKFLOW * count)
    ended, after = database.row(_LEFT, old)
    return float(database.ask(_RATE, last)), (before - after) / (ended - began).total_seconds()
