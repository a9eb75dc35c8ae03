"""The next task for a user: of the same type and the same filter of the list, and one that they may decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import HttpRequest, QueryDict

from workflows import operations
from workflows.health.for_whom import of_whose
from workflows.models import ManualTask
from workflows.models.manual_task import DUE

# The admin keeps the list's filters here while a row of it is shown.
FILTERS = "_changelist_filters"
# Nobody decides more in a row, so counting stops there.
LEFT_COUNTED = 100


@dataclass(frozen=True, slots=True)
class Next:
    """The tasks after one: the first of them, and how many there are."""

    first: ManualTask
    number: int

    @property
    def left(self) -> str:
        return f"{LEFT_COUNTED}+" if self.number > LEFT_COUNTED else str(self.number)


def after(request: HttpRequest, row: ManualTask) -> Next | None:
    user = cast("User", request.user)
    tasks = operations.decidable(user).filter(task_type=row.task_type).exclude(pk=row.pk)
    of_filter = of_whose(tasks, filters(request).get("whose"), user)
    found = list(of_filter.order_by(DUE, "id")[: LEFT_COUNTED + 1].only("id"))
    return Next(found[0], len(found)) if found else None


def filters(request: HttpRequest) -> QueryDict:
    """The filters of the list that the user came from."""
    return QueryDict(request.GET.get(FILTERS, ""))


def query(request: HttpRequest, **also: str) -> str:
    """A query string that keeps the list's filters; empty if there is nothing to keep."""
    kept = {FILTERS: request.GET[FILTERS]} if request.GET.get(FILTERS) else {}
    return f"?{urlencode({**kept, **also})}" if kept or also else ""
