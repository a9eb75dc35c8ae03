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
    url = reverse(f"admin:workflows_{link.model}_changelist")
    filters = (*link.filters, *([("whose", "all")] if link.model == "manualtask" else []))  # counts are of all tasks
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


def failures_of(cause: Cause, times: str = "") -> str:
    """The list of a group: its failures of these times, or those that nobody has acknowledged."""
    asked = {"failed": times} if times else {"preset": LEFT}
    return f"{reverse('admin:workflows_workflow_changelist')}?{urlencode({**asked, **filters_of(cause)})}"


def failed_in(times: str, cause: Cause | None = None) -> str:
    """The list of all failures of these times, even if retried since; of one cause, or of all."""
    return in_times("ended", times, **(filters_of(cause) if cause else {}))


def in_times(what: str, times: str, **filters: str) -> str:
    """The list of the workflows that `ended` (failed), `came` or `completed` in these times; see `time_filters`."""
    return f"{reverse('admin:workflows_workflow_changelist')}?{urlencode({what: times, **filters})}"


def filters_of(cause: Cause) -> dict[str, str]:
    """The filters of the list of workflows that name a cause."""
    return {name: value for name, value in cause._asdict().items() if value is not None}
