"""The bulk verb that runs a failed best-effort step again in many workflows."""

from __future__ import annotations

from django.db.models import Case, CharField, Exists, OuterRef, Subquery, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Coalesce

from workflows.features.deferred_steps.operations import FAILED_KINDS, count_left, follow_up
from workflows.models import Event, FollowUp, Workflow
from workflows.operations.bulk_verbs import Became, BulkVerb
from workflows.operations.guards import FOLLOW_UP
from workflows.postgres.statements import literals

# The last failure of any step: a later event is a failure that nobody has seen.
_ITS_LAST_FAILURE = f"""(SELECT max(e.id) FROM workflows_event e
                          WHERE e.workflow_id = chosen.id AND e.kind IN {literals(FAILED_KINDS)})"""  # noqa: S608 (ours)


def _became() -> Case:
    """What became of the step that the operation names. A step that is done has no row any more."""
    asked = Event.objects.filter(workflow=OuterRef("row"), kind=Event.Kind.FOLLOW_UP_ASKED, step=OuterRef("step"))
    rows = FollowUp.objects.filter(workflow=OuterRef("row"), step=OuterRef("step")).values_list(
        Case(
            When(due_at=None, then=Value(Became.GIVEN_UP)),
            default=Value(Became.UNDER_WAY),
            output_field=CharField(),
        )
    )
    kept = Workflow.objects.filter(pk=OuterRef("row"), emptied_at=None)
    return Case(
        When(~Exists(kept), then=Value(Became.DELETED)),
        When(at__lt=Subquery(asked.order_by("-id").values("at")[:1]), then=Value(Became.AGAIN)),
        default=Coalesce(Subquery(rows), Value(Became.FOLLOWED_UP), output_field=CharField()),
        output_field=CharField(),
    )


RUN_EACH_AGAIN = BulkVerb(
    name="run_again",
    permission=FOLLOW_UP,
    act=lambda item, **who: follow_up(item.row, in_bulk=True, seen=item.seen or 0, **who),
    seen=_ITS_LAST_FAILURE,
    calls_again=True,
    counts=lambda bulk: count_left(bulk.items.values_list("row", flat=True), bulk.arguments["step"]),
    noun="second run of a step",
    did="run again",
    how=[
        "A worker runs this one step of each, at once; no other step is run, and each workflow stays complete.",
        "A call that is on record as done is not made again. One that nobody knows to have happened is left alone.",
        "One that fails again for good is given up, and “For you” lists it.",
    ],
    done="made due",
    became=_became,
    annotations={"step": KeyTextTransform("step", "operation__arguments")},
    aim=Became.FOLLOWED_UP,
)
