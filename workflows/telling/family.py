"""FAMILY: what a decision about one workflow means for those that it has started, and for the one that started it."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Exists, OuterRef, Q, QuerySet

from workflows.models import Wait, Workflow

PENDING, COMPLETE, FAILED = Workflow.Status.PENDING, Workflow.Status.COMPLETE, Workflow.Status.FAILED


def of_cancel(parent: Workflow) -> Iterator[str]:
    """What cancelling a parent does to its children, in sentences."""
    children = Workflow.objects.filter(parent=parent)
    if pending := children.filter(status=PENDING, compensating=False).count():
        yield (
            f"{_started(pending)} cancelled with it: what {'that has' if pending == 1 else 'those have'} done in other "
            "systems is reversed where it can be."
        )
    if complete := children.filter(status=COMPLETE).count():
        yield f"{_started(complete)} complete: what was done there stays."


def of_retry(child: Workflow) -> Iterator[str]:
    """Says that the parent has read how this child ended, and goes on with that."""
    if child.parent_id and _read(Workflow.objects.filter(pk=child.pk)).exclude(parent__status=FAILED).exists():
        yield (
            f"Workflow {child.parent_id}, which has started this one, has read that it failed. It goes on with that, "
            "whatever the retry does."
        )


def changed_since(parent: Workflow) -> str:
    """Says that children have another outcome by now than the parent has read; empty if none has."""
    read = _read(Workflow.objects.filter(parent=parent), Q(resolved_at__lt=OuterRef("completed_at")))
    number = read.count() + _read(Workflow.objects.filter(parent=parent, status=PENDING)).count()
    if not number:
        return ""
    return (
        f"{_started(number)} under way again, or finished, since it asked. What it asks does not say so, and an answer "
        "does not change that: it goes on with what it has read."
    )


def _read(children: QuerySet[Workflow], when: Q | None = None) -> QuerySet[Workflow]:
    """Those whose parent has read how they ended, and keeps that."""
    of_parent = {"workflow": OuterRef("parent"), "name": OuterRef("parent_wait"), "kind": Wait.Kind.CHILDREN}
    return children.filter(Exists(Wait.objects.filter(when or Q(), **of_parent, outcome="ended", superseded=False)))


def _started(number: int) -> str:
    return "1 workflow that it has started is" if number == 1 else f"{number:,} workflows that it has started are"
