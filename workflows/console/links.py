"""LINKS: addresses that several pages use."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.admin.utils import quote
from django.urls import reverse

from workflows.health.bounded import Link
from workflows.models.failure import Cause

LEFT = "unacknowledged"  # the preset of the list of workflows


def to(link: Link) -> str:
    """The address of the page, or list, that a link names."""
    if link.pk:
        return reverse(f"admin:workflows_{link.model}_change", args=[quote(link.pk)])
    url = reverse(f"admin:{link.page or f'workflows_{link.model}_changelist'}")
    is_queue = link.model == "manualtask" or link.page == "needs_a_person"
    filters = (*link.filters, *([("whose", "all")] if is_queue else []))  # counts are of all, not of the user's
    return f"{url}?{urlencode(filters)}" if filters else url


def workflow(workflow_id: int) -> str:
    """The page of a workflow."""
    return reverse("admin:workflows_workflow_change", args=[workflow_id])


def task(task_id: int) -> str:
    """The page of a manual task."""
    return reverse("admin:workflows_manualtask_change", args=[task_id])


def bulk_operation(bulk_id: int) -> str:
    """The page of a bulk operation."""
    return reverse("admin:workflows_bulkoperation_change", args=[bulk_id])


def incident(cause: Cause, shown: str = "") -> str:
    """The page of a cause; `shown` names a range of time."""
    return f"{reverse('admin:incident')}?{query(cause, **({'range': shown} if shown else {}))}"


def query(cause: Cause, **more: str) -> str:
    """The filters that name a cause, as an address has them."""
    return urlencode({**cause._asdict(), **more})


def failures_of(cause: Cause, times: str = "", **filters: str) -> str:
    """The list of a cause: its failures of these times, or those that nobody has acknowledged."""
    asked = {"failed": times} if times else {"preset": LEFT}
    return f"{reverse('admin:workflows_workflow_changelist')}?{query(cause, **asked, **filters)}"


def failed_in(times: str, cause: Cause | None = None, **filters: str) -> str:
    """The list of all failures of these times, even if retried since; of one cause, or of all."""
    return in_times("ended", times, **(cause._asdict() if cause else {}), **filters)


def in_times(what: str, times: str, **filters: str) -> str:
    """The list of the workflows that `ended` (failed), `came` or `completed` in these times; see `time_filters`."""
    return f"{reverse('admin:workflows_workflow_changelist')}?{urlencode({what: times, **filters})}"
