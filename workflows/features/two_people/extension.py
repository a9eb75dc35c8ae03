"""What the rule of two people adds to pages: see `operations.two_people`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Note, ToTell
from workflows.health.bounded import Link
from workflows.health.needs_a_person import Source
from workflows.health.undecided import Undecided
from workflows.models import Confirmation
from workflows.operations import guards
from workflows.operations.two_people import BY_HAND

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from django.db.models import QuerySet

    from workflows.console.verbs import Verb
    from workflows.models import Workflow


def _here(kind: str) -> Link:
    return Link("workflow", page="needs_a_person", filters=(("kind", kind),))


WHOM = "Support leads and engineers"


def _without_task() -> QuerySet[Confirmation]:
    return Confirmation.objects.filter(state=Confirmation.State.ASKED, task=None)


class TwoPeopleExtension(Extension):
    undecided = (
        Undecided(
            41,
            f"""workflows_confirmation WHERE state = 'asked' AND task_id IS NULL AND decision <> '{BY_HAND}'
               AND asked_at <= statement_timestamp() - interval '1 day'""",
            _here("confirmation"),
            "retry has waited for a second person for a day",
            "retries have waited for a second person for a day",
        ),
        Undecided(
            45,
            f"""workflows_confirmation WHERE state = 'asked' AND task_id IS NULL AND decision = '{BY_HAND}'
               AND asked_at <= statement_timestamp() - interval '1 day'""",
            _here("by_hand"),
            "call made by hand has waited for a second person for a day",
            "calls made by hand have waited for a second person for a day",
        ),
        Undecided(
            42,
            "workflows_confirmation WHERE alone AND reviewed_by_id IS NULL",
            _here("review"),
            "answer that a lead has confirmed alone is to be reviewed",
            "answers that leads have confirmed alone are to be reviewed",
        ),
    )
    needs_a_person = (
        Source(
            number=4,
            kind="confirmation",
            label="Retry to confirm",
            model=Confirmation,
            rows=lambda: _without_task().exclude(decision=BY_HAND),
            since="asked_at",
            columns=("asked_at",),
            asks=lambda row: "Retry to confirm: charge again what was refunded?",
            whom=WHOM,
            permissions=(guards.CANCEL_PAID,),
            not_by="asked_by",
        ),
        Source(
            number=9,
            kind="by_hand",
            label="Done by hand, to confirm",
            model=Confirmation,
            rows=lambda: _without_task().filter(decision=BY_HAND),
            since="asked_at",
            columns=("asked_at",),
            asks=lambda row: "Done by hand, to confirm: was the call made?",
            whom=WHOM,
            permissions=(guards.RESOLVE,),
            not_by="asked_by",
        ),
        Source(
            number=5,
            kind="review",
            label="Confirmed alone, to review",
            model=Confirmation,
            rows=Confirmation.objects.unreviewed,
            since="asked_at",
            columns=("asked_at",),
            asks=lambda row: "Review what a lead has confirmed alone",
            whom=f"{WHOM}, auditors",
            permissions=(guards.CANCEL_PAID, guards.VIEW_AUDIT),
            not_by="decided_by",
        ),
    )
    to_tell = (
        ToTell(
            "second_person.wanted",
            "confirmation",
            """SELECT id, workflow_id, asked_at FROM workflows_confirmation c
                WHERE state = 'asked' AND (task_id IS NULL OR EXISTS (
                      SELECT FROM workflows_manualtask t WHERE t.id = c.task_id AND t.state = 'open'))""",
            [guards.ASSIGN, guards.RESOLVE],
        ),
    )
    empties = (
        """UPDATE workflows_confirmation
              SET reason = '', answer = NULL, state = CASE state WHEN 'asked' THEN 'stale' ELSE state END
            WHERE workflow_id = ANY (%(ids)s)""",
    )
    belongs = ("workflows_confirmation WHERE workflow_id",)

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.two_people import page

        return page.VERBS

    def foretells(self, verb: str, workflow: Workflow) -> Iterable[str]:
        from workflows.features.two_people import page

        return page.foretold(workflow) if verb == "retry" else ()

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        from workflows.features.two_people import page

        return page.notes(workflow)
