from __future__ import annotations

from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp
from workflows.models.workflow import Workflow


class CaseNote(models.Model):
    """What a user has written about a workflow, for colleagues. Only the workflow's page shows the text."""

    form_key = models.UUIDField(unique=True)  # of the form and its text: sent twice, it stores one note
    workflow = models.ForeignKey(  # without a constraint: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="case_notes"
    )
    added_at = models.DateTimeField(db_default=ClockTimestamp())
    actor = models.CharField(max_length=150)
    text = models.TextField()  # empty once the workflow's content is deleted
    # When it asked a lead, or the team, to see to the workflow, until somebody has.
    lead_asked_at = models.DateTimeField(null=True)
    team = models.CharField(max_length=150, db_default="")  # the name of a group; empty: a lead is asked

    class Meta:
        default_permissions = ()
        indexes = [
            models.Index(name="case_note_of_workflow", fields=["workflow", "id"]),
            # health.needs_a_person.
            models.Index(name="case_note_lead", fields=["lead_asked_at", "id"], condition=~Q(lead_asked_at=None)),
        ]

    def __str__(self) -> str:
        return f"note {self.pk} on workflow {self.workflow_id}"
