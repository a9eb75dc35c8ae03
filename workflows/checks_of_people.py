"""Checks of the users. They run with `manage.py check --database default`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from django.contrib.auth.models import Group
from django.core.checks import CheckMessage, Warning
from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from django.db.models import Count
from django.utils import timezone

from workflows.checks import readable_definitions
from workflows.models import ManualTask
from workflows.models.manual_task import OPERATIONS, able_to_decide
from workflows.operations.task_rules import why_nobody_decides
from workflows.operations.two_people import YOUNGEST, able_to_charge_again


def check_two_people(*, databases: Collection[str] | None = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """Where two people let a charge be made again, there are two: accounts with one e-mail address are one person."""
    names = sorted(each.name for each in readable_definitions().values() if each.two_people)
    if not (names and databases and DEFAULT_DB_ALIAS in databases):
        return
    question = ManualTask(team=OPERATIONS, four_eyes=False)
    for what, users, rights in (
        ("answer an unclear call", able_to_decide(question), "resolve_manualtask"),
        ("charge again what was refunded", able_to_charge_again(), "retry_workflow and cancel_paid_workflow"),
    ):
        try:
            found = list(users.values_list("pk", "email", "date_joined"))
        except ProgrammingError:  # not migrated yet: `migrate` runs checks, too
            return
        of_any_age = {email.strip().lower() or pk for pk, email, _ in found}
        people = {email.strip().lower() or pk for pk, email, joined in found if joined <= timezone.now() - YOUNGEST}
        if len(people) < 2:
            too_new = len(of_any_age) - len(people)
            yield Warning(
                f"Two people have to {what} ({', '.join(names)}), and {len(people)} may"
                + (f"; {too_new} more from when their account is a day old." if too_new else "."),
                hint=f"Give another person an account with {rights}: by the group support lead, for example. Until "
                "then a lead confirms their own answer, after eight hours.",
                id="workflows.W041",
            )


def check_deciders(*, databases: Collection[str] | None = None, **kwargs: Any) -> Iterator[CheckMessage]:
    """For each team that has open tasks, and is asked before a reversal, a user may decide. Superusers do not count."""
    if not (databases and DEFAULT_DB_ALIAS in databases):
        return
    asked = {each.before_undo.team: 0 for each in readable_definitions().values() if each.before_undo}
    try:
        groups = set(Group.objects.values_list("name", flat=True))
        open_tasks = dict(ManualTask.objects.open().order_by().values_list("team").annotate(Count("pk")))
        teams = {team: 0 for team in asked if team in groups} | open_tasks
        without = [team for team in sorted(teams) if why_nobody_decides(ManualTask(team=team, four_eyes=False))]
    except ProgrammingError:  # as above
        return
    for team in without:
        yield Warning(
            f"No user may decide what the team {team!r} is asked; {teams[team]:,} tasks wait for it."
            if team
            else f"No user may decide the tasks without a team; {teams[team]:,} wait.",
            hint="To be in a team is not yet the permission decide_manualtask: put its members into the group "
            "approver, too, and tick staff. What nobody decides expires.",
            id="workflows.W049",
        )
