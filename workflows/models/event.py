from __future__ import annotations

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow
from workflows.models.xids import TransactionId

# Workflows that failed or were cancelled: there are few of these.
NOT_COMPLETED = ~Q(kind="completed") & Q(finished_xid__isnull=False)
NOT_COMPLETED_SQL = "kind <> 'completed' AND finished_xid IS NOT NULL"


class Event(models.Model):
    """One event of a workflow's history: a transition, or what a person did. The attempt records what each step did."""

    class Kind(models.TextChoices):
        COMPLETED = "completed"
        FAILED = "failed"
        RETRY_SCHEDULED = "retry_scheduled", "Retry scheduled"
        WAITING = "waiting"
        PARKED = "parked"
        RESCHEDULED = "put_back", "Paused"
        VANISHED = "vanished", "Worker vanished"
        CRASHED = "crashed", "Worker crashed"
        KILLED = "killed", "Worker killed"
        INTERRUPTED = "interrupted", "Worker interrupted"
        LOST = "lost", "Attempt lost"
        BEST_EFFORT_FAILED = "best_effort_failed", "Best-effort step failed"
        FOLLOWED_UP = "followed_up", "Followed up"
        FOLLOW_UP_FAILED = "follow_up_failed", "Deferred step failed"
        FOLLOW_UP_GIVEN_UP = "follow_up_given_up", "Deferred step given up"
        FOLLOW_UP_ASKED = "follow_up_asked", "Run again"
        TASK_CLAIMED = "task_claimed", "Task claimed"
        TASK_ASSIGNED = "task_assigned", "Task assigned"
        LEAD_ASKED = "lead_asked", "Lead asked"
        LEAD_HAS_SEEN = "lead_has_seen", "Seen to by a lead"
        TEAM_ASKED = "team_asked", "Handed to a team"
        TEAM_HAS_SEEN = "team_has_seen", "Seen to by the team"
        TASK_RELEASED = "task_released", "Task released"
        APPROVED = "approved"
        REJECTED = "rejected"
        EXPIRED = "expired"
        RETRACTED = "taken_back", "Answer retracted"
        DECISION_UNDONE = "decision_undone", "Decision taken back"
        ACKNOWLEDGED = "acknowledged"
        NOT_DEALT_WITH = "not_dealt_with", "Acknowledgement taken back"
        NOTED = "noted", "Note added"
        RETRIED = "retried", "Retried"
        CONFIRMATION_ASKED = "confirmation_asked", "A second person is asked to confirm"
        CONFIRMATION_REFUSED = "confirmation_refused", "Not confirmed"
        CONFIRMATION_WITHDRAWN = "confirmation_withdrawn", "Withdrawn before it was confirmed"
        REVIEWED = "reviewed", "Reviewed"
        BY_HAND = "by_hand", "Done by hand"
        CORRECTION_ASKED = "correction_asked", "Correction asked for"
        CORRECTED = "corrected"
        CORRECTION_REFUSED = "correction_refused", "Correction refused"
        CORRECTION_WITHDRAWN = "correction_withdrawn", "Correction withdrawn"
        CORRECTION_LAPSED = "correction_lapsed", "Correction lapsed"
        PROPOSED = "proposed", "Proposed by an API key"
        PROPOSAL_REFUSED = "proposal_refused", "Proposal refused"
        PROPOSAL_WITHDRAWN = "proposal_withdrawn", "Proposal withdrawn"
        PROPOSAL_LAPSED = "proposal_lapsed", "Proposal lapsed"
        RUN_NOW = "run_now", "Run now"
        DOUBT_ASKED = "doubt_asked", "Wants to say whether it happened"
        PAUSE_ASKED = "pause_asked", "Asked to pause"
        PAUSED = "paused", "Paused by a person"
        PAUSE_LAPSED = "pause_lapsed", "Not paused"
        RESUMED = "resumed"
        DUPLICATE = "duplicate"
        NOT_A_DUPLICATE = "not_a_duplicate", "Not a duplicate"
        CANCEL_REQUESTED = "cancel_requested", "Cancellation requested"
        CANCEL_TOO_LATE = "cancel_too_late", "Too late to cancel"
        CANCELLED = "cancelled"
        COMPENSATING = "compensating", "Reversal started"
        UNDO_FAILED = "undo_failed", "Reversal failed"
        COMPENSATED = "compensated", "Reversed"

    # A person has let a finished workflow run again.
    RUN_AGAIN = (Kind.RETRIED, Kind.CORRECTED, Kind.NOT_A_DUPLICATE, Kind.BY_HAND)
    # A new run starts, or a compensation, or a deferred step's tries: earlier attempts, with their ends and durations,
    # say nothing about it.
    STARTS_RUN = (*RUN_AGAIN, Kind.COMPENSATING, Kind.FOLLOW_UP_ASKED)
    # Why a workflow failed, if it is then reversed.
    VERDICTS = (Kind.FAILED, Kind.CANCELLED, Kind.DUPLICATE)

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="events"
    )
    at = models.DateTimeField(db_default=ClockTimestamp())
    kind = models.CharField(max_length=30, choices=Kind)
    attempt = models.PositiveIntegerField(null=True)  # the attempt's number
    step = models.CharField(max_length=100, db_default="")
    actor = models.CharField(max_length=150, db_default="")  # the user who did it; empty for the engine
    detail = models.JSONField(db_default=models.Value({}, models.JSONField()))
    finished_xid = TransactionId(null=True)  # the transaction, if the workflow finished with it; for `engine.rollup`

    class Meta:
        default_permissions = ("view",)
        indexes = [
            models.Index(name="event_of_workflow", fields=["workflow", "id"]),
            # engine.rollup: workflows that have finished since it last looked.
            models.Index(name="event_finished", fields=["finished_xid"], condition=~Q(finished_xid=None)),
            # health.failures.ends.
            models.Index(name="event_not_completed", fields=["-at", "-id"], condition=NOT_COMPLETED),
            # The audit: what people did, without the engine's events.
            models.Index(name="event_of_people", fields=["-at", "-id"], condition=~Q(actor="")),
            models.Index(name="event_of_actor", fields=["actor", "-at", "-id"], condition=~Q(actor="")),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of workflow {self.workflow_id}"
