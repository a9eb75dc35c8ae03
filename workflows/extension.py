"""EXTENSION: what a feature brings to pages, metrics, checks and commands. To workers it brings `engine.extension`.

What is asked for stands below the features, and names none of them: it asks `installed()`.
"""

from __future__ import annotations


class Extension:
    """What a feature brings beside the workers. Each method has an answer that brings nothing."""


def installed() -> tuple[Extension, ...]:
    """The extensions of this release, in the order in which they are asked."""
    from workflows.features.installed import EXTENSIONS  # the one import from below, when it is first needed

    return EXTENSIONS
