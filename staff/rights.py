"""Who may administer whom: nobody can give, or gain, a right (a permission or a group) that they do not have."""

from __future__ import annotations

from django.contrib.auth.models import Group, Permission, User
from django.db.models import Q, QuerySet


def permissions_of(user: User) -> QuerySet[Permission]:
    """The permissions that a user has, or would have if they were active."""
    if user.is_superuser:
        return Permission.objects.all()
    return Permission.objects.filter(
        Q(pk__in=user.user_permissions.values("pk")) | Q(group__in=user.groups.values("pk"))
    ).distinct()


def groups_of(user: User) -> QuerySet[Group]:
    return Group.objects.all() if user.is_superuser else user.groups.all()


def may_administer(who: User, user: User) -> bool:
    """Whether `user` has no right that `who` lacks, so that `who` gains nothing by their password."""
    if who.is_superuser:
        return True
    return (
        not user.is_superuser
        and not permissions_of(user).exclude(pk__in=permissions_of(who).values("pk")).exists()
        and not user.groups.exclude(pk__in=groups_of(who).values("pk")).exists()
    )


def may_be_forgotten(who: User, user: User) -> bool:
    """Whether `who` may rename `user`, or delete one who is not on record.

    Only a superuser may if the user has signed in.
    """
    return who.is_superuser or user.last_login is None


def may_administer_group(who: User, group: Group) -> bool:
    """Whether `who` is in the group, and so has all its permissions."""
    return groups_of(who).filter(pk=group.pk).exists()
