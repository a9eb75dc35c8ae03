"""What corrections add to pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Note, Stay, ToTell
from workflows.health.bounded import Link
from workflows.health.needs_a_person import Source
from workflows.health.undecided import waiting_for_a_second_person
from workflows.models import Correction
from workflows.operations import guards

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from workflows.console.verbs import Verb
    from workflows.models import Workflow


def _asks(row: Correction) -> str:
    return f"Correction to approve: {', '.join(each['label'] for each in row.told)}"


class CorrectionsExtension(Extension):
    undecided = (
        waiting_for_a_second_person(
            40,
            "workflows_correction",
            Link("workflow", page="needs_a_person", filters=(("kind", "correction"),)),
            "correction",
        ),
    )
    needs_a_person = (
        Source(
            number=2,
            kind="correction",
            label="Correction to approve",
            model=Correction,
            rows=Correction.objects.open,
            since="asked_at",
            columns=("told",),
            asks=_asks,
            whom="Support leads and engineers",
            permissions=(guards.CORRECT,),
            not_by="asked_by",
        ),
    )
    stays = (
        Stay(
            "correction",
            "EXISTS (SELECT FROM workflows_correction c WHERE c.workflow_id = w.id AND c.state = 'asked')",
            "somebody has asked for a correction: approve the correction, or do not correct it",
        ),
    )
    to_tell = (
        ToTell(
            "second_person.wanted",
            "correction",
            "SELECT id, workflow_id, asked_at FROM workflows_correction WHERE state = 'asked'",
            [guards.ASSIGN, guards.RESOLVE],
        ),
    )
    empties = (
        "DELETE FROM workflows_originalpayload WHERE workflow_id = ANY (%(ids)s)",
        "UPDATE workflows_correction SET told = '[]', reason = '' WHERE workflow_id = ANY (%(ids)s)",
    )
    belongs = ("workflows_correction WHERE workflow_id",)

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.corrections import page

        return page.VERBS

    def foretells(self, verb: str, workflow: Workflow) -> Iterable[str]:
        from workflows.features.corrections import page

        return page.foretold(verb, workflow)

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        from workflows.features.corrections import page

        yield from map(Note, page.lines(workflow))
        yield from (Note(line, is_plain=True) for line in page.for_others(workflow, user))
