"""Whoever administers users, and is not a superuser, ends with no right more: neither of their own nor within reach."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from staff.rights import groups_of, permissions_of
from tests.staff.conftest import CountingHasher
from tests.workflows.admin.walk.stored import Watch

CHOSEN = "chosen by the attacker"
AT_WORK = {"is_active": "on", "is_staff": "on", "date_joined_0": "2026-01-01", "date_joined_1": "00:00:00"}
EVE = {"username": "eve", "usable_password": "true", "password1": CHOSEN, "password2": CHOSEN}

# To make a user, Django wants both.
LEAST = ["add_user", "change_user"]
ADMINISTERS = [f"{verb}_{model}" for verb in ("add", "change", "delete", "view") for model in ("user", "group")]
SEES = "view_workflow"
LACKS = "cancel_workflow"


def permission(codename: str) -> Permission:
    return Permission.objects.get(codename=codename)


class House:
    """A console with an administrator of users who is in the groups `reception` and `lead`, and no superuser."""

    def __init__(self, administers: list[str]) -> None:
        self.administers = administers
        self.reception = self.group("reception", SEES)
        self.lead = self.group("lead", *administers)
        self.engineers = self.group("engineers", SEES, LACKS)
        self.team = self.group("clinicians")  # a team: without permissions, but its name decides who decides
        self.root = User.objects.create_superuser("root")
        self.engineer = self.user("engineer", self.engineers)
        self.clinician = self.user("clinician", self.team)
        self.retired = self.user("retired", self.engineers, is_active=False)
        self.own_way = self.user("own-way", self.reception)
        self.own_way.user_permissions.add(permission(LACKS))
        self.colleague = self.user("colleague", self.reception)
        self.attacker = self.user("attacker", self.reception, self.lead)
        self.client = Client()
        self.client.force_login(self.attacker)

    def group(self, name: str, *codenames: str) -> Group:
        group = Group.objects.create(name=name)
        group.permissions.set(Permission.objects.filter(codename__in=codenames))
        return group

    def user(self, name: str, *groups: Group, **fields: Any) -> User:
        user = User.objects.create_user(name, is_staff=True, **fields)
        user.groups.set(groups)
        return user

    def restore(self) -> None:
        """Give the attacker back what they took from themselves: with less, everything else would be refused."""
        self.reception.permissions.set([permission(SEES)])
        self.lead.permissions.set(Permission.objects.filter(codename__in=self.administers))
        self.attacker.groups.set([self.reception, self.lead])
        User.objects.filter(pk=self.attacker.pk).update(is_active=True, is_staff=True, username="attacker")
        self.client.force_login(User.objects.get(pk=self.attacker.pk))

    @property
    def above(self) -> list[User]:
        """The users who have something that the attacker has not."""
        return [self.root, self.engineer, self.clinician, self.retired, self.own_way]


@pytest.fixture
def house(request: pytest.FixtureRequest, db: None, hasher: type[CountingHasher]) -> House:
    return House(getattr(request, "param", ADMINISTERS))


def rights(user: User) -> set[Any]:
    user = User.objects.get(pk=user.pk)
    return {*permissions_of(user), *groups_of(user), *(["superuser"] if user.is_superuser else [])}


def within_reach(house: House) -> set[Any]:
    """What the attacker can do: as themselves, or as anybody whose password they chose."""
    chosen = [user for user in User.objects.all() if user.check_password(CHOSEN)]
    return set().union(*(rights(user) for user in [house.attacker, *chosen]))


def everything(users: list[User]) -> list[Any]:
    return [
        (values, sorted(user.groups.values_list("pk")), sorted(user.user_permissions.values_list("pk")))
        for user in users
        for values in User.objects.filter(pk=user.pk).exclude(pk=None).values()
    ]


def forms_of_users(user: User | None) -> Iterator[dict[str, Any]]:
    """What may be sent to a page of a user, with everything that one could wish for, and with one thing alone."""
    base: dict[str, Any] = {
        "username": user.username if user else "puppet",
        **AT_WORK,
        "email": "",
        "first_name": "",
        "last_name": "",
        "usable_password": "true",
        "password1": CHOSEN,
        "password2": CHOSEN,
        "password": CHOSEN,
        "_continue": "1",
        "set-password": "1",
        "post": "yes",
    }
    wishes: list[dict[str, Any]] = [
        {},
        {"is_superuser": "on"},
        *({"groups": [group.pk]} for group in Group.objects.all()),
        *({"user_permissions": [permission(code).pk]} for code in (LACKS, SEES)),
        {"groups": list(Group.objects.values_list("pk", flat=True)), "is_superuser": "on"},
    ]
    for wish in wishes:
        yield {**base, **wish}


def forms_of_groups(group: Group | None, number: int = 0) -> Iterator[dict[str, Any]]:
    """Each permission once, and each name once; which with which is another for the next number."""
    names = [group.name if group else "mine", "clinicians", "new team"]
    for at, codes in enumerate([[], [SEES], [LACKS]], number):
        given = [permission(code).pk for code in codes]
        yield {"name": names[at % 3], "permissions": given, "post": "yes", "_continue": "1"}


def posts(house: House) -> Iterator[tuple[str, dict[str, Any]]]:
    """In pairs: each wish for each user like oneself and for somebody above, each permission and name for each group.

    A page for a password takes no wish. Groups first, so that users can wish for the new ones; deletions last.
    """
    for number, group in enumerate([None, *Group.objects.all()]):
        for form in forms_of_groups(group, number):
            yield f"/admin/auth/group/{f'{group.pk}/change' if group else 'add'}/", form
    for form in forms_of_users(None):
        yield "/admin/auth/user/add/", form
    above = house.above
    for user in User.objects.order_by("pk"):
        wishes = forms_of_users(user)
        for form in islice(wishes, above.index(user), None, len(above)) if user in above else wishes:
            yield f"/admin/auth/user/{user.pk}/change/", form
        yield f"/admin/auth/user/{user.pk}/password/", form
    for model, pks in (("user", [u.pk for u in house.above]), ("group", [house.engineers.pk, house.team.pk])):
        for pk in pks:
            yield f"/admin/auth/{model}/{pk}/delete/", {"post": "yes"}
            yield f"/admin/auth/{model}/", {"action": "delete_selected", "_selected_action": [pk], "post": "yes"}
            yield f"/admin/auth/{model}/", {"_save": "1", "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("house", [ADMINISTERS, LEAST], indirect=True)
def test_no_post_gives_a_right_more(house: House) -> None:
    before, untouched = within_reach(house), everything(house.above)
    giving = set(Group.objects.filter(permissions__codename=LACKS))
    refused, taken = 0, 0
    watch = Watch()
    for url, form in posts(house):
        answer = house.client.post(url, form)
        refused, taken = refused + (answer.status_code != 302), taken + (answer.status_code == 302)
        if watch.changed():
            assert within_reach(house) <= before, (url, form)
            house.restore()
            watch = Watch()
    assert everything(house.above) == untouched
    assert set(Group.objects.filter(permissions__codename=LACKS)) == giving
    assert Group.objects.filter(name="clinicians").get() == house.team
    assert refused > 80
    assert taken > 15  # what they may do they can


def test_they_give_what_they_have(house: House) -> None:
    """What else they may do: `tests/workflows/admin/walk/table.py`."""
    assert house.client.post("/admin/auth/user/add/", EVE).status_code == 302
    eve = User.objects.get(username="eve")
    given = {"username": "eve", **AT_WORK, "groups": [house.reception.pk]}
    assert house.client.post(f"/admin/auth/user/{eve.pk}/change/", given).status_code == 302
    assert rights(eve) == rights(house.colleague)


def test_whoever_has_signed_in_is_neither_deleted_nor_renamed(house: House) -> None:
    """The record of what a user did to users stays, and by another name the history would tell of somebody else."""
    client, attacker = house.client, house.attacker
    assert client.post("/admin/auth/user/add/", EVE).status_code == 302
    at = f"/admin/auth/user/{attacker.pk}"
    assert client.post(f"{at}/delete/", {"post": "yes"}).status_code == 403
    client.post("/admin/auth/user/", {"action": "delete_selected", "_selected_action": [attacker.pk], "post": "yes"})
    given = {"username": "nobody", **AT_WORK, "groups": [house.reception.pk, house.lead.pk]}
    assert client.post(f"{at}/change/", given).status_code == 302
    assert LogEntry.objects.filter(user=attacker, object_repr="eve").exists()
    assert User.objects.get(pk=attacker.pk).username == "attacker"
    house.client.force_login(house.root)
    assert house.client.post(f"{at}/change/", given).status_code == 302
    assert User.objects.get(pk=attacker.pk).username == "nobody"
    assert house.client.post(f"{at}/delete/", {"post": "yes"}).status_code == 403
    eve = User.objects.get(username="eve").pk
    assert house.client.post(f"/admin/auth/user/{eve}/delete/", {"post": "yes"}).status_code == 302
    assert list(User.objects.filter(pk__in=[attacker.pk, eve])) == [attacker]


def test_superusers_are_not_seen(house: House) -> None:
    users = "/admin/auth/user/"
    assert "root" not in house.client.get(users).content.decode()
    assert "superuser" not in house.client.get(users).content.decode()
    assert "root" not in house.client.get(f"{users}?is_superuser__exact=1", follow=True).content.decode()
    answer = house.client.get(f"{users}{house.root.pk}/history/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")
    assert "is_superuser" not in house.client.get(f"{users}{house.colleague.pk}/change/").content.decode()


def test_nothing_can_be_asked_of_users_that_is_no_filter_of_the_list(house: House) -> None:
    house.client.force_login(house.root)
    asked = [
        "username=%00",
        "username__regex=(",
        "last_login__year=99999999999",
        "email__contains=%00",
        "groups__name=%00",
    ]
    answers = {query: house.client.get(f"/admin/auth/user/?{query}").status_code for query in asked}
    assert answers == dict.fromkeys(asked, 400)


def test_only_what_they_have_is_offered(house: House) -> None:
    page = house.client.get(f"/admin/auth/user/{house.colleague.pk}/change/").content.decode()
    assert "engineers" not in page
    assert "Can cancel" not in page
    assert "reception" in page


def test_the_name_of_a_group_is_for_superusers_to_change(house: House) -> None:
    url, form = f"/admin/auth/group/{house.reception.pk}/change/", {"name": "front desk", "permissions": []}
    house.client.post(url, form)
    assert Group.objects.get(pk=house.reception.pk).name == "reception"
    house.client.force_login(house.root)
    house.client.post(url, form)
    assert Group.objects.get(pk=house.reception.pk).name == "front desk"
