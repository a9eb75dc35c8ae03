"""What bulk operations add to pages and commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.urls import reverse

from workflows.extension import Extension, InBar, Panel, ToTell
from workflows.features.bulk import operations
from workflows.features.bulk.verbs import VERBS
from workflows.health.bounded import Link
from workflows.health.undecided import Undecided, waiting_for_a_second_person
from workflows.operations.guards import BULK, VIEW_BULK

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User
    from django.db.models import QuerySet
    from django.http import HttpRequest

    from workflows.console.home import First
    from workflows.health.failures import Group
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models.failure import Cause


class BulkExtension(Extension):
    bulk_verbs = VERBS
    undecided = (
        Undecided(
            10,
            "workflows_bulkoperation WHERE state = 'paused'",
            Link("bulkoperation"),
            "bulk operation is paused",
            "bulk operations are paused",
        ),
        waiting_for_a_second_person(20, "workflows_bulkoperation", Link("bulkoperation"), "bulk operation"),
    )
    to_tell = (
        ToTell(
            "second_person.wanted",
            "bulk_operation",
            "SELECT id, NULL::bigint, asked_at FROM workflows_bulkoperation WHERE state = 'asked'",
            [BULK],
            model="bulkoperation",
        ),
    )
    subcommand_groups = (("bulk", "many workflows at once, and what becomes of it"),)

    bar = (InBar(60, "Bulk operations", "admin:workflows_bulkoperation_changelist", [VIEW_BULK]),)

    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.bulk import page

        return (page,)

    def choose(self, verb: str, rows: QuerySet[Any, Any], *, user: User, chosen_by: str, cause: str = "") -> str:
        made = operations.choose(verb, rows, user=user, chosen_by=chosen_by, cause=cause)
        return reverse("admin:workflows_bulkoperation_start", args=[made.pk])

    def incident(self, cause: Cause, group: Group | None, request: HttpRequest) -> Iterable[Panel]:
        from workflows.features.bulk import of_cause

        return of_cause.panels(cause, request)

    def first_lines(self, user: User) -> Sequence[First]:
        from workflows.features.bulk import page

        return page.first_lines(user)

    def number_awaiting(self, user: User) -> int:
        return operations.to_approve(user).count()

    def awaiting(self, user: User) -> Sequence[tuple[str, Link]]:
        from workflows.features.bulk import page  # registers a page: only once the models are ready

        return [(sentence, Link("bulkoperation", pk=str(row.pk))) for row, sentence in page.awaiting(user)]

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.bulk import command  # only this command needs it

        return command.SUBCOMMANDS
