"""A deputy gets what is asked of somebody who is away; where two people are needed, both are one."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import permutations
from typing import Any

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, transaction
from django.db.models import F
from django.utils import timezone

from tests.engine import do_chore, elsewhere, until_blocked
from tests.postgres import without_triggers
from tests.workflows import rows
from tests.workflows.model.people import person
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.corrections import operations as corrections
from workflows.features.deputies import operations as deputies
from workflows.features.operator_api import proposals
from workflows.features.retention import erasing
from workflows.health.for_whom import Whose
from workflows.health.needs_a_person import Asked, Kind, page_and_count, sources
from workflows.models import Confirmation, Deputy, Event, ManualTask
from workflows.models.manual_task import able_to_decide
from workflows.operations import two_people

pytestmark = pytest.mark.django_db(transaction=True)

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def ada() -> User:
    return person("ada")


@pytest.fixture
def bob() -> User:
    return person("bob")


@pytest.fixture
def eve() -> User:
    return person("eve")


def stands_in(deputy: User, absent: User, begins: timedelta = -HOUR, ends: timedelta = DAY) -> Deputy:
    now = timezone.now()
    times = {"begins_at": now + begins, "ends_at": now + ends}
    return Deputy.objects.create(absent=absent, deputy=deputy, set_by="root", **times)


def task_of(user: User, **fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), assignee=user, claimed_at=timezone.now(), **fields)


def listed(user: User, whose: Whose) -> list[int]:
    return sorted(each.pk for each in page_and_count(Asked(user, kinds=[Kind.TASK], whose=whose))[0].items)


def approve(task: ManualTask, user: User) -> None:
    operations.approve(task.pk, user=user, answer={})


# --- Who is asked -------------------------------------------------------------------------------------


def test_a_deputy_gets_the_tasks_and_the_history_names_both(ada: User, bob: User, eve: User) -> None:
    task = task_of(ada)
    assert listed(bob, Whose.YOU) == listed(bob, Whose.MINE) == []
    with pytest.raises(NotAllowed, match=r"ada has claimed it, at .+ UTC\.$"):
        approve(task, bob)
    stands_in(bob, ada)
    assert listed(bob, Whose.YOU) == listed(bob, Whose.MINE) == listed(ada, Whose.YOU) == [task.pk]
    assert listed(bob, Whose.OTHERS) == listed(eve, Whose.YOU) == []
    assert listed(eve, Whose.OTHERS) == [task.pk]
    with pytest.raises(NotAllowed, match="; bob stands in"):
        approve(task, eve)
    approve(task, bob)
    event = Event.objects.get(kind="approved")
    assert (event.actor, event.detail["deputy_for"]) == ("bob", "ada")


def test_a_deputy_hands_on_takes_and_gives_back_in_the_others_place(ada: User, bob: User) -> None:
    stands_in(bob, ada)
    given = task_of(ada)
    ManualTask.objects.filter(pk=given.pk).update(assignee=None)
    assert (
        operations.assign(given.pk, user=bob, to=ada.pk, seen=[])
        == "It is assigned to ada, who is away: bob stands in."
    )
    bob.user_permissions.remove(*bob.user_permissions.filter(codename="assign_manualtask"))
    bob = User.objects.get(pk=bob.pk)
    for act in (
        lambda task: operations.claim_task(task.pk, user=bob),
        lambda task: operations.release_task(task.pk, user=bob),
        lambda task: operations.assign(task.pk, user=bob, to=bob.pk, seen=[ada.pk]),
    ):
        act(task_of(ada))
        assert Event.objects.latest("pk").detail["deputy_for"] == "ada"


@pytest.mark.parametrize("when", [(HOUR, DAY), (-DAY, -HOUR)])
def test_before_and_after_it_nothing_is_the_deputys(ada: User, bob: User, when: Any) -> None:
    stands_in(bob, ada, *when)
    task = task_of(ada)
    assert listed(bob, Whose.YOU) == []
    with pytest.raises(NotAllowed, match=r"ada has claimed it, at .+ UTC\.$"):
        approve(task, bob)


def lose_the_team(bob: User) -> None:
    bob.groups.clear()


def leave(bob: User) -> None:
    User.objects.filter(pk=bob.pk).update(is_active=False)


def fall_ill(bob: User) -> None:
    stands_in(person("carl"), bob)


def have_requested(bob: User) -> None:
    ManualTask.objects.update(four_eyes=True, requested_by=bob)


@pytest.mark.parametrize("happens", [lose_the_team, leave, fall_ill, have_requested])
def test_what_the_deputy_cannot_decide_is_free_for_the_team(
    ada: User, bob: User, eve: User, happens: Callable[[User], None]
) -> None:
    for each in (ada, bob, eve):
        each.groups.add(Group.objects.get_or_create(name="clinic")[0])
    task = task_of(ada, team="clinic")
    stands_in(bob, ada)
    assert listed(eve, Whose.YOU) == []
    happens(bob)
    assert listed(eve, Whose.YOU) == [task.pk]
    assert operations.tasks.read_task(task.pk).is_held is False
    approve(task, eve)
    assert "deputy_for" not in Event.objects.get(kind="approved").detail


def test_a_deputy_gains_no_right(ada: User, bob: User) -> None:
    ada.groups.add(Group.objects.create(name="clinic"))
    task = task_of(ada, team="clinic")
    stands_in(bob, ada)
    assert listed(bob, Whose.YOU) == []
    with pytest.raises(NotAllowed, match="you are not in it"):
        approve(task, bob)


# --- Four eyes ----------------------------------------------------------------------------------------


def requested(by: User) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), four_eyes=True, requested_by=by)


def retried(by: User) -> Confirmation:
    return rows.to_confirm(by, rows.refunded())


def retried_many(by: User) -> Any:
    return rows.bulk_operation(by, state="asked", four_eyes=True)


def corrected(by: User) -> Any:
    row = rows.asked_to_correct()
    type(row).objects.filter(pk=row.pk).delete()
    row.pk, row.asked_by = None, by
    row.save(force_insert=True)
    return row


NOW = timezone.now()
# Of each rule: what the first person does, what the page refuses the second one, and what the database does.
TWO: dict[str, tuple[Callable[[User], Any], Callable[[Any, User], str], dict[str, Any], str]] = {
    "a task": (requested, operations.why_not_decide, {"state": "approved", "decided_at": NOW}, "decided_by"),
    "a retry": (retried, two_people.why_not_confirm, {"state": "confirmed"}, "decided_by"),
    "a correction": (
        *(corrected, corrections.why_not_approve),
        *({"state": "approved", "decided_at": NOW, "proposed": None}, "decided_by"),
    ),
    "an erasure": (rows.erasure, erasing.why_not_approve, {"state": "done", "decided_at": NOW}, "decided_by"),
    "a bulk operation": (retried_many, bulk.why_not_approve, {"state": "running"}, "approved_by"),
}


@pytest.mark.parametrize("what", TWO)
@pytest.mark.parametrize("turned", [False, True])
def test_where_two_are_needed_a_deputy_and_the_other_are_one(what: str, turned: bool) -> None:
    ada, bob = (person(name) for name in ("ada", "bob"))
    do, why_not, given, second = TWO[what]
    made = do(ada)
    row = operations.tasks.read_task(made.pk) if what == "a task" else type(made).objects.get(pk=made.pk)
    assert why_not(row, bob) == ""
    row_of = type(made).objects.filter(pk=made.pk)
    stood_in = stands_in(*((ada, bob) if turned else (bob, ada)))
    assert "count as one person, as deputies" in why_not(row, bob)
    for _ in ("now", "when it has ended, for what was done before"):
        with pytest.raises(IntegrityError) as refused:
            row_of.update(**given, **{second: bob})
        cause = refused.value.__cause__
        assert isinstance(cause, psycopg.Error)
        assert cause.diag.constraint_name == "four_eyes_of_deputies"
        deputies.end(stood_in.pk, user=ada) if Deputy.objects.now().exists() else None
    with without_triggers():
        Deputy.objects.update(begins_at=F("begins_at") - 9 * DAY, ends_at=timezone.now() - 8 * DAY)
    assert why_not(row, bob) == ""
    row_of.update(**given, **{second: bob})


def test_who_becomes_a_deputy_while_they_approve_is_told_so(
    ada: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, decide = rows.proposal(ada, rows.failed()).pk, proposals._decide

    def late(*args: Any) -> None:
        elsewhere(lambda: stands_in(bob, ada))
        decide(*args)

    monkeypatch.setattr(proposals, "_decide", late)
    with pytest.raises(NotAllowed, match="count as one person"):
        proposals.approve(number, user=bob, seen=[number])


def test_two_deputies_of_one_person_are_one_and_a_deputy_of_the_deputy_is_another(
    ada: User, bob: User, eve: User
) -> None:
    asked = retried(bob)
    stands_in(bob, ada)
    stands_in(eve, bob, HOUR, DAY)
    assert two_people.why_not_confirm(asked, eve) == "", "it has not begun"
    with without_triggers():
        Deputy.objects.filter(deputy=eve).update(begins_at=timezone.now())
    assert "one person" in two_people.why_not_confirm(asked, eve)
    by_ada = retried(ada)
    assert two_people.why_not_confirm(by_ada, eve) == "", "eve stands in for bob, and not for ada"
    stands_in(eve, ada, -HOUR, HOUR)
    for first, second in permutations((ada, bob, eve), 2):
        row = retried(first)
        assert "one person" in two_people.why_not_confirm(row, second)


def test_if_only_the_deputy_is_left_a_lead_confirms_alone_and_not_the_deputy(ada: User, bob: User, eve: User) -> None:
    asked = rows.to_confirm(ada, rows.refunded(completed_at=timezone.now() - 10 * HOUR))
    with without_triggers():
        Confirmation.objects.update(asked_at=timezone.now() - 9 * HOUR)
    asked.refresh_from_db()
    User.objects.filter(pk=eve.pk).update(is_active=False)
    assert "another user confirms it" in two_people.why_not_confirm(asked, ada)
    stands_in(bob, ada)
    assert two_people.why_not_confirm(asked, ada) == ""
    operations.confirm_retry(asked.workflow_id, user=ada, seen=[asked.pk], reason="Nobody else is here.")
    asked.refresh_from_db()
    assert asked.alone
    assert "one person" in two_people.why_not_review(asked, bob)
    with pytest.raises(IntegrityError, match="another one decides"):
        Confirmation.objects.update(reviewed_by=bob)


def test_nobody_links_the_others_to_themselves_so_as_to_confirm_alone(ada: User, bob: User, eve: User) -> None:
    asked = rows.to_confirm(ada, rows.refunded(completed_at=timezone.now() - 10 * HOUR))
    with without_triggers():
        Confirmation.objects.update(asked_at=timezone.now() - 9 * HOUR)
    asked.refresh_from_db()
    for each in (bob, eve):
        deputies.appoint(each.pk, user=ada, deputy=ada.pk, until=timezone.now() + DAY)
        assert "one person" in two_people.why_not_confirm(asked, each)
    assert "You have set yourself who stands in" in two_people.why_not_confirm(asked, ada)
    for made in Deputy.objects.all():
        deputies.end(made.pk, user=ada)
    assert two_people.why_not_confirm(retried(ada), bob) == "", "what she asks for anew"


def test_for_you_has_nothing_that_a_deputy_may_not_decide_as_the_second(ada: User, bob: User) -> None:
    task = requested(ada)
    made = [retried(ada), corrected(ada)]
    erasure, many = rows.erasure(ada), rows.bulk_operation(ada, state="asked", verb="retry")
    kinds = [Kind.TASK, *(each.kind for each in sources().values())]

    def of(whose: Whose) -> int:
        return len(page_and_count(Asked(bob, kinds=kinds, whose=whose))[0].items)

    assert (of(Whose.YOU), of(Whose.OTHERS)) == (1 + len(made), 0)
    assert (erasing.awaiting(bob), list(bulk.to_approve(bob))) == ([(erasure, "")], [many])
    stands_in(bob, ada)
    assert (of(Whose.YOU), of(Whose.OTHERS)) == (0, 1 + len(made))
    assert not {*erasing.awaiting(bob), *bulk.to_approve(bob)}
    assert not able_to_decide(task).filter(pk__in=[ada.pk, bob.pk]).exists()


# --- Setting one --------------------------------------------------------------------------------------


def test_people_set_their_own_and_leads_anybodys(ada: User, bob: User) -> None:
    until = timezone.now() + DAY
    lead, ada_alone = person("lead"), person("no-lead", "decide_manualtask")
    task_of(ada, team="nobody's")
    said = deputies.appoint(ada.pk, user=lead, deputy=bob.pk, until=until)
    left = "bob may not decide 1 of the open tasks of ada: meanwhile everybody who may can decide."
    assert re.fullmatch(
        rf"It is set: bob stands in for ada until .+ UTC\. {re.escape(left)} {re.escape(deputies.AS_ONE)}", said
    )
    deputies.appoint(ada_alone.pk, user=ada_alone, deputy=bob.pk, until=until + DAY, begins=until)
    with pytest.raises(PermissionDenied):
        deputies.appoint(bob.pk, user=ada_alone, deputy=lead.pk, until=until)
    of_ada = Deputy.objects.get(absent=ada)
    with pytest.raises(PermissionDenied):
        deputies.end(of_ada.pk, user=ada_alone)
    for row, user in ((of_ada, lead), (Deputy.objects.get(absent=ada_alone), ada_alone)):
        deputies.end(row.pk, user=user)
        with pytest.raises(NotAllowed, match="over already"):
            deputies.end(row.pk, user=user)
    assert not Deputy.objects.now().exists()
    log = LogEntry.objects.order_by("pk").values_list("user__username", "object_repr", "change_message")
    assert list(log)[:1] == [("lead", "ada", "Deputy: bob.")]
    assert len(log) == 4


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "oneself": ({"deputy": "ada"}, "stands in for themselves"),
    "it is over": ({"until": -HOUR}, "is over"),
    "too long": ({"until": 181 * DAY}, "for 180 days at the most"),
    "too far ahead": ({"begins": 366 * DAY, "until": 367 * DAY}, "begins in 365 days"),
    "a second one": ({"deputy": "eve", "until": 3 * DAY}, "bob stands in for them .+: end that first"),
    "who is away": ({"absent": "eve", "deputy": "ada"}, "ada is away until"),
    "a circle": ({"absent": "bob", "deputy": "ada"}, "ada is away until"),
    "who left": ({"absent": "eve", "deputy": "gone"}, "cannot sign in"),
    "who decides nothing": ({"absent": "eve", "deputy": "nobody"}, "may decide no tasks"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_it_is_refused(why: str, ada: User, bob: User, eve: User) -> None:
    people = {each.username: each for each in (ada, bob, eve, person("nobody", "view_workflow"), person("gone"))}
    User.objects.filter(username="gone").update(is_active=False)
    stands_in(bob, ada)
    given = {"absent": "ada", "deputy": "bob", "until": DAY, **REFUSED[why][0]}
    absent, deputy = people[given.pop("absent")], people[given.pop("deputy")]
    if why in ("oneself", "it is over", "too long", "too far ahead"):
        absent = absent if why == "oneself" else eve
    times = {name: timezone.now() + each for name, each in given.items()}
    with pytest.raises(NotAllowed, match=REFUSED[why][1]):
        deputies.appoint(absent.pk, user=person("lead"), deputy=deputy.pk, **times)
    assert Deputy.objects.count() == 1


def test_two_who_appoint_each_other_at_once_do_not_both_get_through(ada: User, bob: User) -> None:
    until = timezone.now() + DAY

    def appoint(absent: User, deputy: User) -> str:
        try:
            return deputies.appoint(absent.pk, user=absent, deputy=deputy.pk, until=until)
        except NotAllowed as refusal:
            return str(refusal)

    with ThreadPoolExecutor() as threads:
        with transaction.atomic():
            # As far as it comes before its commit.
            User.objects.select_for_update(no_key=True).get(pk=ada.pk)
            stands_in(bob, ada)
            other = threads.submit(elsewhere, lambda: appoint(bob, ada))
            until_blocked()
        assert "ada is away until" in other.result()
    assert Deputy.objects.count() == 1


def test_nobody_takes_back_what_four_eyes_rest_on_and_it_is_forgotten_in_the_end(ada: User, bob: User) -> None:
    row = stands_in(bob, ada)
    for changed in ({"ends_at": timezone.now() - 2 * HOUR}, {"ends_at": timezone.now() + 9 * DAY}, {"deputy": ada}):
        with pytest.raises(IntegrityError):
            Deputy.objects.update(**changed)
    with pytest.raises(IntegrityError):
        row.delete()
    with without_triggers(), connection.cursor() as cursor:
        cursor.execute("UPDATE workflows_deputy SET begins_at = now() - interval '402 days'")
        Deputy.objects.update(ends_at=timezone.now() - 399 * DAY)
    assert do_chore("forget deputies").changed == 0
    with without_triggers():
        Deputy.objects.update(ends_at=timezone.now() - 401 * DAY)
    assert do_chore("forget deputies").changed == 1
