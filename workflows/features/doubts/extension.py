"""What the wish to say whether a call happened adds to the page of a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Said

if TYPE_CHECKING:
    from workflows.console.verbs import Verb
    from workflows.models import Attempt, Workflow


class DoubtsExtension(Extension):
    def verbs(self) -> Sequence[Verb]:
        from workflows.features.doubts import page

        return page.VERBS

    def says(self, workflow: Workflow, attempt: Attempt | None) -> Said:
        from workflows.features.doubts import page

        return page.said(workflow)
