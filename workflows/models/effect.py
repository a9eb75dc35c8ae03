from __future__ import annotations

from django.db import models

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class NextCallNumber(models.Func):
    """The next call number, from a sequence that all workflows share."""

    template = "nextval('workflows_effect_call_number')"
    output_field = models.BigIntegerField()


class Effect(models.Model):
    """A changing call on the ledger: that of a `once` step or, with `undo`, of the function that undoes it.

    Unique by workflow, step, generation and `undo`. The idempotency key of an undo is that of its effect with `:undo`.
    `attempt` is the id of the attempt that last started or decided it. Only a worker that knows the random
    `attempt_token` may write the result of a call under way; a later attempt that takes over the effect writes its own
    token.
    """

    class State(models.TextChoices):
        INTENT = "intent", "Under way"
        DONE = "done"
        NOT_DONE = "not_done", "Not done"
        SKIPPED = "skipped", "Did not apply"
        UNKNOWN = "unknown", "Unclear"
        UNDONE = "undone", "Reversed"
        KEPT = "kept", "Left as it is"

    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="effects"
    )
    step = models.CharField(max_length=100)
    generation = models.IntegerField(db_default=1)
    undo = models.BooleanField(db_default=False)  # the call undoes the step's effect of this generation
    state = models.CharField(max_length=10, choices=State)
    # The service recognises the call by it. Empty: what `effects.recorded_key` derives. This release reads such rows,
    # and writes none, because the one before would send ":undo" as the key of their undo.
    idempotency_key = models.CharField(max_length=200)
    attempt = models.BigIntegerField()
    attempt_token = models.UUIDField(null=True)
    result = models.JSONField(null=True)  # what the step returned
    # The reference of a call that a person has made outside; its key was never sent. Empty for our own calls.
    by_hand = models.CharField(max_length=200, db_default="")
    error_class = models.CharField(max_length=200, db_default="")
    error_code = models.CharField(max_length=100, db_default="")
    error_message = models.TextField(db_default="")
    first_begun_at = models.DateTimeField(db_default=ClockTimestamp())  # when its key was first sent
    begun_at = models.DateTimeField(db_default=ClockTimestamp())  # when the call was last started
    # Drawn when the call starts: calls are undone in reverse order, whatever the clock says.
    call_number = models.BigIntegerField(null=True, db_default=NextCallNumber())
    settled_at = models.DateTimeField(null=True)  # when the call's outcome became known; an undo does not change it
    # How its state became known: call, lookup, or a person's name.
    settled_by = models.CharField(max_length=150, db_default="")
    has_undo = models.BooleanField(db_default=False)  # its step had an undo when the call started
    undo_failures = models.IntegerField(db_default=0)  # failures of its undo since a person decided
    # Failures of its undo at an unavailable service, which `undo_failures` leaves out.
    undo_unavailable = models.IntegerField(db_default=0)

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="effect_unique_call", fields=["workflow", "step", "generation", "undo"]),
            models.CheckConstraint(
                name="effect_done_has_a_result", condition=~models.Q(state="done") | models.Q(result__isnull=False)
            ),
            # Our key is never sent for what was done by hand.
            models.CheckConstraint(
                name="effect_by_hand_is_not_called",
                condition=models.Q(by_hand="") | models.Q(undo=False, state__in=["done", "undone", "kept"]),
            ),
        ]

        # health.money_at_risk.failed_reversals, newest first. Making a call writes none of its columns.
        indexes = [models.Index(name="effect_undo_failed", fields=["id"], condition=models.Q(undo_failures__gt=0))]

    def __str__(self) -> str:
        return f"effect of {self.step} of workflow {self.workflow_id}"
