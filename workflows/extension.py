"""EXTENSION: what a feature brings to pages, metrics, checks and commands. To workers it brings `engine.extension`.

What is asked for stands below the features, and names none of them: it asks `installed()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from workflows.operations.bulk_verbs import BulkVerb


class Extension:
    """What a feature brings beside the workers. Each method has an answer that brings nothing."""

    # What can be done to many rows at once. Each has a name of its own, of 20 characters at most: rows keep it.
    bulk_verbs: ClassVar[Sequence[BulkVerb]] = ()


def installed() -> tuple[Extension, ...]:
    """The extensions of this release, in the order in which they are asked."""
    from workflows.features.installed import EXTENSIONS  # the one import from below, when it is first needed

    return EXTENSIONS
