"""MONEY AT RISK: reversals that failed, and charges that stand though their workflow has failed."""

from __future__ import annotations

from workflows.effects import MAY_HAVE_HAPPENED
from workflows.health import bounded
from workflows.operations.payments import failed_with_a_charge
from workflows.postgres.statements import fetch_row

# Of the failed workflows that nobody has acknowledged, so many are looked at, the newest: each failure is told of while
# it is new. When there are more, that number itself is the alarm.
FAILURES = 1_000


def failed_reversals() -> int:
    """Calls that are to be undone, and whose undo has failed since a person decided; an outage alone is not a failure.

    The newest of the calls whose undo has ever failed are looked at, as many as are counted.
    """
    (number,) = fetch_row(
        """SELECT count(*) FROM (
               SELECT workflow_id FROM workflows_effect
                WHERE undo_failures > 0 AND NOT undo AND state = ANY (%(states)s) ORDER BY id DESC LIMIT %(limit)s) e
            CROSS JOIN LATERAL (
               SELECT FROM workflows_workflow w WHERE w.id = e.workflow_id AND w.compensating LIMIT 1) under_way""",
        {"states": list(MAY_HAVE_HAPPENED), "limit": bounded.limit() + 1},
    )
    return int(number)


def standing_charges() -> int:
    """Failed workflows that nobody has acknowledged, and whose charge stands or is unclear, among the newest."""
    return failed_with_a_charge(FAILURES)
