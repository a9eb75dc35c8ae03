"""Users and groups: nobody but a superuser gives a right that they lack. The rules are in `rights`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth import admin as django_admin
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import PermissionDenied
from django.db.models import ManyToManyField, QuerySet
from django.forms import ModelMultipleChoiceField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path as route

from staff.enrolment import new_link
from staff.rights import groups_of, may_administer, may_administer_group, may_be_forgotten, permissions_of

if TYPE_CHECKING:
    ManyToMany = ManyToManyField[Any, Any]
    ModelAdmin = admin.ModelAdmin[Any]
    DjangoUserAdmin = django_admin.UserAdmin[User]
else:
    ManyToMany = ManyToManyField
    ModelAdmin = admin.ModelAdmin
    DjangoUserAdmin = django_admin.UserAdmin

admin.site.unregister([User, Group])


def _user(request: HttpRequest) -> User:
    return cast(User, request.user)


class GivesOwnRights(ModelAdmin):
    """Offers the permissions and groups that the user has themselves; a form that names others is refused."""

    def formfield_for_manytomany(
        self, db_field: ManyToMany, request: HttpRequest, **kwargs: Any
    ) -> ModelMultipleChoiceField[Any] | None:
        if db_field.remote_field.model is Permission:
            kwargs["queryset"] = permissions_of(_user(request)).select_related("content_type")
        elif db_field.remote_field.model is Group:
            kwargs["queryset"] = groups_of(_user(request))
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only the filters on the page. The admin's own rule takes what PostgreSQL refuses: a NUL, for one."""
        field, _, how = lookup.partition("__")
        return field in self.get_list_filter(request) and how in ("exact", "id__exact", "isnull")


@admin.register(User)
class StaffUserAdmin(GivesOwnRights, DjangoUserAdmin):
    """Only superusers see superusers. A user who has a right that one lacks can only be looked at.

    Only superusers rename a user who has signed in, or delete one. Of whom Django's log has something, nobody deletes:
    it stays, and the database refuses to delete it with them.
    """

    readonly_fields = ("last_login", "date_joined")  # what is known is not to be edited

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        # The history has names: after a rename it would tell of somebody else.
        kept = ("username",) if obj and not may_be_forgotten(_user(request), obj) else ()
        return (*self.readonly_fields, *kept)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        users = super().get_queryset(request)
        return users if _user(request).is_superuser else users.filter(is_superuser=False)

    def get_list_filter(self, request: HttpRequest) -> list[Any]:
        offered = list(super().get_list_filter(request))
        return offered if _user(request).is_superuser else [each for each in offered if each != "is_superuser"]

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        fieldsets = super().get_fieldsets(request, obj)
        if _user(request).is_superuser:
            return fieldsets
        # The link to set the password stands beside it.
        hidden = ["is_superuser"] if self.has_change_permission(request, obj) else ["is_superuser", "password"]
        return [
            (title, {**options, "fields": [field for field in options["fields"] if field not in hidden]})
            for title, options in fieldsets
        ]

    def has_change_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        may = super().has_change_permission(request, obj)
        return may and (obj is None or may_administer(_user(request), obj))

    def get_urls(self) -> list[Any]:
        page = self.admin_site.admin_view(self.second_factor)
        return [route("<int:pk>/second-factor/", page, name="auth_user_second_factor"), *super().get_urls()]

    def second_factor(self, request: HttpRequest, pk: int) -> HttpResponse:
        """A link for a colleague to enrol a second factor. Theirs are removed: they have none, or have lost it.

        Nobody does that for themselves: with an open session of theirs somebody else could.
        """
        user = self.get_object(request, str(pk))
        if user is None or user == request.user or not self.has_change_permission(request, user):
            raise PermissionDenied
        link = (
            request.build_absolute_uri(new_link(user, by=_user(request), lost=True)) if request.POST.get("sure") else ""
        )
        about = {"title": f"Second factor of {user}", "original": user, "opts": self.opts, "link": link}
        return render(request, "staff/factor_link.html", {**self.admin_site.each_context(request), **about})

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        may = super().has_delete_permission(request, obj)
        if obj is None or not may:
            return may
        is_on_record = LogEntry.objects.filter(user=obj).exists()
        return not is_on_record and may_administer(_user(request), obj) and may_be_forgotten(_user(request), obj)


@admin.register(Group)
class StaffGroupAdmin(GivesOwnRights, django_admin.GroupAdmin):  # type: ignore[misc]  # of the same hook
    """A group can be changed by its members, within the permissions that they have; only superusers rename one."""

    def get_readonly_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        # By another name it would be another team.
        return ["name"] if obj and not _user(request).is_superuser else []

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        may = super().has_change_permission(request, obj)
        return may and (obj is None or may_administer_group(_user(request), obj))

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        may = super().has_delete_permission(request, obj)
        return may and (obj is None or may_administer_group(_user(request), obj))
