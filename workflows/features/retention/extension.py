"""What legal holds and erasures add to pages, checks and commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from workflows.extension import Extension, ToTell
from workflows.features.retention import holds
from workflows.features.retention.checks import check_retention
from workflows.health.bounded import Link
from workflows.health.undecided import waiting_for_a_second_person
from workflows.operations.guards import ERASE

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User

    from workflows.console.home import First
    from workflows.console.verbs import Verb
    from workflows.extension import Note
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models import Workflow


class RetentionExtension(Extension):
    commands = ("workflows.features.retention.commands.purge",)
    deploy_checks = (check_retention,)
    # Some of them nobody can approve yet: a workflow is under way, or held.
    undecided = (waiting_for_a_second_person(30, "workflows_erasure", Link("erasure"), "erasure", "to be carried out"),)
    to_tell = (
        ToTell(
            "second_person.wanted",
            "erasure",
            "SELECT id, NULL::bigint, asked_at FROM workflows_erasure WHERE state = 'asked'",
            [ERASE],
            is_urgent=False,  # the law gives a month
            model="erasure",
        ),
    )
    subcommand_groups = (("erase", "what a person was found by and has sent, because they ask for it"),)

    def lists(self) -> Sequence[ModuleType]:
        from workflows.features.retention import erasure_page, page

        return (page, erasure_page)

    def number_awaiting(self, user: User) -> int:
        from workflows.features.retention import erasure_page  # as below

        return len([*erasure_page.awaiting(user)])

    def first_lines(self, user: User) -> Sequence[First]:
        from workflows.features.retention import erasure_page  # as below

        return erasure_page.first_lines(user)

    def awaiting(self, user: User) -> Sequence[tuple[str, Link]]:
        from workflows.features.retention import erasure_page  # registers a page: only once the models are ready

        return [(sentence, Link("erasure", pk=str(row.pk))) for row, sentence, _ in erasure_page.awaiting(user)]

    def subcommands(self) -> Mapping[str, Subcommand]:
        from workflows.features.retention import command  # only this command needs it

        return command.SUBCOMMANDS

    def needs_old_keys(self) -> str:
        if not (held := holds.of_old_keys()):
            return ""
        return (
            f"{len(held):,} legal holds are on an e-mail address by a hash of an older key, and nothing can make "
            f"that again: leave the older key in SEARCH_KEYS until {max(held):%Y-%m-%d %H:%M} UTC, when the last "
            "of them ends. It also holds what comes later."
        )

    def verbs(self) -> Sequence[Verb]:
        from workflows.features.retention import page

        return page.VERBS

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        from workflows.features.retention import page

        return page.notes(workflow, user)
