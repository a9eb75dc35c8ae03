"""What a call that was made by hand adds to pages, and to what is deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, Stay

if TYPE_CHECKING:
    from workflows.console.verbs import Verb


class ByHandExtension(Extension):
    stays = (
        Stay(
            "by_hand",
            """EXISTS (SELECT FROM workflows_confirmation c
                        WHERE c.workflow_id = w.id AND c.state = 'asked' AND c.decision = 'by_hand')""",
            "somebody says that its call was made by hand: confirm that, or do not confirm it",
        ),
    )
    empties = (
        """UPDATE workflows_effect SET by_hand = '(deleted)'
            WHERE workflow_id = ANY (%(ids)s) AND by_hand NOT IN ('', '(deleted)')""",
    )

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.by_hand import page

        return page.VERBS
