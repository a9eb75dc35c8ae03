"""What the outbox adds to pages, metrics and checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from workflows.extension import Extension, Panel, Stay
from workflows.features.outbox import health
from workflows.features.outbox.bulk_verbs import DISCARD_EACH, REDELIVER_EACH
from workflows.features.outbox.checks import check_outbox
from workflows.features.outbox.relay import LEASE
from workflows.models import OutboxEvent

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User

    from workflows.health.bounded import Link
    from workflows.health.side_processes import Unattended
    from workflows.models import Workflow

# The newest so many, on a workflow's page.
EVENTS_SHOWN = 50


class OutboxExtension(Extension):
    commands = ("workflows.features.outbox.commands.relayoutbox",)
    checks = (check_outbox,)
    bulk_verbs = (REDELIVER_EACH, DISCARD_EACH)
    stays = (
        Stay(
            "untold",
            f"""EXISTS (SELECT FROM workflows_outboxevent o
                        WHERE o.workflow_id = w.id
                          AND (o.state IN ('', 'given_up')
                               -- discarded, and perhaps in the hands of a relay that sends it all the same
                               OR o.state = 'discarded' AND o.due_at > clock_timestamp()
                                  AND o.due_at <= o.settled_at + make_interval(secs => {LEASE})))""",
            "others have not been told of it yet: wait, or redeliver or discard its events in the Outbox",
        ),
    )
    empties = ("DELETE FROM workflows_outboxevent WHERE workflow_id = ANY (%(ids)s)",)

    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.outbox import page

        return (page,)

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        rows = OutboxEvent.objects.defer("body").filter(workflow=workflow).order_by("-id")
        events = list(rows[:EVENTS_SHOWN])
        return [Panel("connections", "admin/workflows/workflow/told.html", {"events": events})] if events else []

    def stands_still(self, user: User) -> Sequence[tuple[str, Link]]:
        return health.need_a_person(health.standings()) if user.has_perm(health.SEE_OUTBOX) else ()

    def figures(self, at: datetime) -> health.Destinations:
        found = health.standings()
        return health.Destinations(found, health.wanted(found, at))

    def wanted(self, at: datetime) -> Sequence[Unattended]:
        return health.wanted(health.standings(), at)
