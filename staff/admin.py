"""Users and groups: only a superuser can give a right that they lack. The rules are in `rights`."""

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
    """Offers only the user's own permissions and groups. Refuses a form that names others."""

    def formfield_for_manytomany(
        self, db_field: ManyToMany, request: HttpRequest, **kwargs: Any
    ) -> ModelMultipleChoiceField[Any] | None:
        if db_field.remote_field.model is Permission:
            kwargs["queryset"] = permissions_of(_user(request)).select_related("content_type")
        elif db_field.remote_field.model is Group:
            kwargs["queryset"] = groups_of(_user(request))
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only the page's filters. The admin's rule accepts what PostgreSQL refuses, such as a NUL."""
        field, _, how = lookup.partition("__")
        return field in self.get_list_filter(request) and how in ("exact", "id__exact", "isnull")


@admin.register(User)
class StaffUserAdmin(GivesOwnRights, DjangoUserAdmin):
    """Only superusers see superusers. Users can only look at another user who has a right that they lack.

    Only superusers rename or delete a user who has signed in. Nobody deletes a user whom Django's log mentions: the log
    stays, and the database refuses to delete it.
    """

    readonly_fields = ("last_login", "date_joined")  # facts

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> Any:
        # The history has names: after a rename it would seem to be about somebody else.
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
        # The page shows the link to set the password beside it.
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
        """Make a link by which a colleague enrols a second factor. Removes their old ones: they have none, or lost it.

        Users cannot do this for themselves: somebody else at their open session could.
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
    """A group's members may change it, within their own permissions. Only superusers rename one."""

    def get_readonly_fields(self, request: HttpRequest, obj: Group | None = None) -> Any:
        # Teams are known by name, so a renamed group would be another team.
        return ["name"] if obj and not _user(request).is_superuser else []

    def has_change_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        may = super().has_change_permission(request, obj)
        return may and (obj is None or may_administer_group(_user(request), obj))

    def has_delete_permission(self, request: HttpRequest, obj: Group | None = None) -> bool:
        may = super().has_delete_permission(request, obj)
        return may and (obj is None or may_administer_group(_user(request), obj))
