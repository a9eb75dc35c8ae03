"""The cause of a failure, by which failures are grouped."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import Q


class Cause(NamedTuple):
    """`code` is the class of an error that has none; `release` None stands for all.

    The names are those of the filters of the list of workflows.
    """

    workflow_type: str
    step: str
    code: str
    release: str | None = None


def of_code(code: str) -> Q:
    return Q(last_error_code=code) | Q(last_error_code="", last_error_class=code)
