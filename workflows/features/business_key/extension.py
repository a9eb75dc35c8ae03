"""What the business key adds to pages, commands and metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from workflows.extension import Extension, Said
from workflows.features.business_key import duplicates, telling

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workflows.console.dialogues import Dialogue
    from workflows.console.verbs import Verb
    from workflows.extension import Note
    from workflows.models import Attempt, Workflow


class BusinessKeyExtension(Extension):
    urgent_questions: ClassVar[Mapping[str, tuple[str, str]]] = {
        duplicates.TASK_TYPE: ("possible duplicate", "possible duplicates"),
    }

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.business_key import page

        return (page.NOT_A_DUPLICATE,)

    def why_not_retry(self, *workflow_ids: int) -> Mapping[int, str]:
        why = "Another workflow has done the same. If this one is to be carried out as well, say Not a duplicate."
        return dict.fromkeys(duplicates.done_by_another(*workflow_ids), why)

    def foretells(self, verb: str, workflow: Workflow) -> Iterable[str]:
        return telling.of_cancel(workflow) if verb == "cancel" else ()

    def says(self, workflow: Workflow, attempt: Attempt | None) -> Said:
        others = duplicates.others_of(workflow)
        return Said(instead=telling.second(workflow, others), notes=_notes(workflow, others))

    def dialogues(self) -> Mapping[str, Dialogue]:
        from workflows.features.business_key import page

        return {duplicates.TASK_TYPE: page.POSSIBLE_DUPLICATE}


def _notes(workflow: Workflow, others: Sequence[duplicates.Other]) -> Iterator[Note]:
    from workflows.features.business_key import page

    yield from page.notes(workflow, others)
