"""What corrections bring to pages."""

from __future__ import annotations

from workflows.extension import Extension
from workflows.health.needs_a_person import Source
from workflows.models import Correction


def _asks(row: Correction) -> str:
    return f"Correct {', '.join(each['label'] for each in row.told)}?"


class CorrectionsExtension(Extension):
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
        ),
    )
