from __future__ import annotations

from collections.abc import Sequence

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.steps_on_record import Entry, as_recorded, as_told
from workflows.models.workflow import Workflow
from workflows.models.xids import TransactionId


class StepOutcome(models.TextChoices):
    """The result of one step of an attempt; the last four belong to a compensation."""

    RAN = "ran", "Ran"
    RECORDED = "recorded", "Done in an earlier attempt"
    SKIPPED = "skipped", "Skipped"
    FAILED = "failed", "Failed"
    BEST_EFFORT_FAILED = "best_effort_failed", "Failed, and passed over"
    WAITING = "waiting", "Waiting"
    UNDONE = "undone", "Reversed"
    UNDO_FAILED = "undo_failed", "Reversal failed"
    NOT_DONE = "not_done", "Had not happened"
    KEPT = "kept", "Left as it is"


class Attempt(models.Model):
    """One pass through the step list. Opened on the attempt log, closed in the claim's transaction.

    The workflow has no foreign key in the database, which would take a KEY SHARE lock (docs/internals/claim.md, "No
    foreign key to a held row").
    """

    class Outcome(models.TextChoices):
        COMPLETE = "complete"
        RETRY = "retry", "Retry"
        WAITING = "waiting"
        FAILED = "failed"
        RESCHEDULED = "put_back", "Paused"
        LOST = "lost", "Lost its database"
        VANISHED = "vanished", "Vanished"
        CRASHED = "crashed", "Crashed its worker"
        KILLED = "killed", "Worker was killed"
        INTERRUPTED = "interrupted", "Interrupted"
        HELD = "held", "Held for a decision"
        COMPENSATED = "compensated", "Reversed"
        FOLLOWED_UP = "followed_up", "Followed up"
        FOLLOW_UP_FAILED = "follow_up_failed", "Deferred step failed"

    # Outcomes that decided about the workflow: the worker and the database lived.
    DECIDED = (Outcome.COMPLETE, Outcome.RETRY, Outcome.WAITING, Outcome.FAILED, Outcome.COMPENSATED)

    workflow = models.ForeignKey(
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="attempts"
    )
    number = models.PositiveIntegerField()
    worker = models.CharField(max_length=200)  # host/mark:process
    release = models.CharField(max_length=100, db_default="")
    opened_at = models.DateTimeField(db_default=ClockTimestamp())
    due_since = models.DateTimeField(null=True)  # when the workflow had become due
    closed_at = models.DateTimeField(null=True)
    closed_xid = TransactionId(null=True)  # the transaction that closed it, for `engine.rollup`
    corrected_xid = TransactionId(null=True)  # the transaction that replaced *vanished* by how it ended
    outcome = models.CharField(max_length=20, choices=Outcome, db_default="")  # empty while it runs
    steps_in_short = models.TextField(db_default="")  # what each step did; a bare name is described in `steps`
    steps_in_full = models.JSONField(db_column="steps", db_default=models.Value([], models.JSONField()))
    died_in = models.CharField(max_length=100, db_default="")  # the last step started before its worker died
    died_how = models.CharField(max_length=50, db_default="")  # a signal, an exit code, grace, overdue, an error
    traceback = models.TextField(db_default="")  # files, lines and functions; never values

    class Meta:
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(name="attempt_unique_number", fields=["workflow", "number"])]
        indexes = [
            models.Index(name="attempt_open", fields=["workflow"], condition=Q(closed_at=None)),
            # engine.rollup: attempts that were closed, or corrected, since it last looked.
            models.Index(name="attempt_closed", fields=["closed_xid"]),
            models.Index(name="attempt_corrected", fields=["corrected_xid"], condition=~Q(corrected_xid=None)),
        ]

    def __str__(self) -> str:
        return f"attempt {self.number} of workflow {self.workflow_id}"

    @property
    def steps(self) -> list[Entry]:
        """What each step did, in order, from both columns of the row.

        [{"step", "outcome": a StepOutcome, "ms", and for a failure "error_class", "error_code", "error_message"}, ...];
        in a compensation with "undo": true.
        """
        return as_told(self.steps_in_short, self.steps_in_full)

    @steps.setter
    def steps(self, steps: Sequence[Entry]) -> None:
        self.steps_in_short, self.steps_in_full = as_recorded(steps)
