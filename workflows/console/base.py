"""What all pages of the console have in common: they show rows, and only verbs change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import quote, unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from workflows import operations
from workflows.console.looks import BACKGROUND
from workflows.console.paging import KeysetList, is_number
from workflows.console.verbs import Verb
from workflows.errors import NotAllowed
from workflows.telling import words
from workflows.templatetags.cards import timed

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


def time_column(title: str, field: str) -> Callable[[Any, Any], SafeString | str]:
    """A column of a list with a time of each row; empty if it has none."""

    @admin.display(description=title)
    def column(page: ConsoleAdmin, row: Any) -> SafeString | str:
        return timed(words.clock(at)) if (at := getattr(row, field)) else ""

    return column


# The field for the row's identity, in each form about a row.
ROW = "row"
ANOTHER = "It has changed since this page was opened, or is another one by now: nothing was done. Look at it again."


class StateFilter(admin.SimpleListFilter):
    """The rows in one of these states. An address has the state's name, because the value of an open one is empty."""

    title = parameter_name = "state"
    states: Iterable[Any]

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin) -> Iterable[tuple[str, str]]:
        return [(each.name.lower(), str(each.label)) for each in self.states]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if (name := self.value()) is None:
            return queryset
        return queryset.filter(state__in=[each for each in self.states if each.name.lower() == name])  # else nothing


class ConsoleAdmin(ModelAdmin):
    """A list and a read-only page. No user adds, edits or deletes a row by hand."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # would count the table for every choice of every filter
    empty_value_display = ""
    list_per_page = 50
    sortable_by = ()
    page_template: str
    list_title = ""  # if it is not the plural of the model's name
    verbs: Sequence[Verb] = ()
    # The fields that distinguish a row from another with the same id: a server that takes over, without the last
    # moments, assigns ids again. Empty if the key is a name.
    identity: tuple[str, ...] = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only the page's own filters. The admin's rule would answer `?payload__patient__email=…`."""
        return lookup in {getattr(offered, "parameter_name", None) for offered in self.get_list_filter(request)}

    def get_urls(self) -> list[URLPattern]:
        return [
            path(
                f"<str:row_id>/{verb.slug}/",
                self.admin_site.admin_view(self.of_its_row(partial(self.verb_view, verb=verb))),
                name=f"{self.opts.app_label}_{self.opts.model_name}_{verb.slug}",
            )
            for verb in self.verbs
        ] + super().get_urls()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not all(map(is_number, request.POST.getlist(ACTION_CHECKBOX_NAME))):
            raise BadRequest("The selection is not valid. Go back to the list and select again.")
        return super().changelist_view(request, {"title": self._title_of_list(), **(extra_context or {})})

    def action_checkbox(self, obj: Model) -> SafeString:
        """The admin's checkbox without a template, because a list has fifty."""
        box = '<input type="checkbox" name="{}" value="{}" class="action-select" aria-label="Select {}">'
        return format_html(box, ACTION_CHECKBOX_NAME, obj.pk, obj)

    def _title_of_list(self) -> str:
        return capfirst(self.list_title or str(self.opts.verbose_name_plural))

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetList

    @admin.display(description="Number")
    def number(self, row: Any) -> int:
        return int(row.pk)

    # --- The page of a row ----------------------------------------------------------------------

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The context of the page of a row."""
        raise NotImplementedError

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        row = self.visible_row(request, unquote(object_id))
        return self.render(request, self.page_template, row, **self.page(request, row), **(extra_context or {}))

    def visible_row(self, request: HttpRequest, row_id: str) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, row_id)
        if row is None:
            raise Http404(f"There is no {self.opts.verbose_name} {row_id}.")
        return row

    def identity_of(self, row: Any) -> str:
        return " ".join(str(getattr(row, field)) for field in self.identity)

    def of_its_row(self, view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
        """Wrap a view that gets forms about a row: it refuses a form from the page of another row."""

        def check(request: HttpRequest, row_id: Any) -> HttpResponse:
            row = self.get_object(request, unquote(str(row_id))) if ROW in request.POST else None
            if row is None or request.POST[ROW] == self.identity_of(row):
                return view(request, row_id)
            self.message_user(request, ANOTHER, messages.ERROR)
            return HttpResponseRedirect(self.url_of("change", row))

        return check

    def name_of(self, row: Any) -> str:
        """The row's name in sentences, and in the link back to its page."""
        return f"{self.opts.verbose_name} {row.pk}"

    def why_nothing(self, row: Any) -> str:
        """Why no verb can be used on a row any more, as a sentence; empty if one can."""
        return ""

    def workflow_of(self, row: Any) -> int | None:
        """The workflow of a row's pages: each view of them is recorded."""
        return None

    def render(self, request: HttpRequest, template: str, row: Any, **context: Any) -> TemplateResponse:
        if (workflow_id := self.workflow_of(row)) is not None:
            operations.record_view(
                workflow_id, actor=request.user.get_username(), in_background=BACKGROUND in request.headers
            )
        verbs = () if self.why_nothing(row) else self.verbs
        applying = [v.of(row) for v in verbs if v.applies(row)]
        possible = [verb for verb in applying if verb.is_for(request.user)]
        barred = {verb: why for verb in possible if (why := verb.why_not(row, request.user))}
        # The last one: what a feature has begun, such as a correction or a pause, comes before a retry. If that is for
        # others, nothing comes next for this user.
        main = next((verb for verb in reversed(applying) if verb.leads(row)), None)
        offered = sorted((verb for verb in possible if verb not in barred), key=lambda verb: verb is not main)
        return TemplateResponse(
            request,
            template,
            {
                **self.admin_site.each_context(request),
                "opts": self.opts,
                "list_title": self._title_of_list(),
                "row": row,
                "row_name": self.name_of(row),
                "row_identity": self.identity_of(row),
                "title": f"{self.opts.verbose_name} {row.pk}".capitalize(),
                "verbs": [(verb, self.url_of(verb.slug, row)) for verb in offered],
                "main": main,
                "barred": [(verb.label, why) for verb, why in barred.items() if not verb.rare],
                "barred_rare": [(verb.label, why) for verb, why in barred.items() if verb.rare],
                **context,
            },
        )

    def url_of(self, page: str, row: Any) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}", args=[quote(row.pk)])

    # --- Verbs ----------------------------------------------------------------------------------

    def verb_view(self, request: HttpRequest, row_id: str, *, verb: Verb) -> HttpResponse:
        """GET says what will happen and asks for a reason; POST does it."""
        if not verb.is_for(request.user):
            raise PermissionDenied
        row = self.visible_row(request, unquote(row_id))
        if refusal := self.why_nothing(row) or verb.why_not(row, request.user):
            self.message_user(request, refusal, messages.ERROR)
            return HttpResponseRedirect(self.url_of("change", row))
        form = verb.form(request.POST if request.method == "POST" else None, row=row)
        seen = _seen(request, verb, row)
        if form.is_valid() and verb.shows:
            return self._show(request, verb, row, form.cleaned_data)
        if form.is_valid():
            self.carry_out(request, verb.done, verb.operation, row.pk, **form.cleaned_data, **seen)
            return HttpResponseRedirect(self.url_of("change", row))
        return self.render(
            request,
            "admin/workflows/confirm.html",
            row,
            verb=(named := verb.of(row)),
            asks=(named.asks or f"{named.label} {{}}").format(self.name_of(row)),
            consequences=verb.consequences(row),
            form=form,
            hidden=[(name, each) for name, ids in seen.items() for each in ids],
            back=self.url_of("change", row),
        )

    def _show(self, request: HttpRequest, verb: Verb, row: Any, arguments: Mapping[str, Any]) -> HttpResponse:
        try:
            facts = verb.operation(row.pk, user=request.user, **arguments)
        except NotAllowed as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
            return HttpResponseRedirect(self.url_of("change", row))
        shown = {"title": verb.label, "name": capfirst(self.name_of(row)), "facts": facts, "about": verb.shows}
        return self.render(request, "admin/workflows/facts.html", row, back=self.url_of("change", row), **shown)

    def tags_of(self, request: HttpRequest, row_id: Any) -> str:
        """Tags of the message that an operation on a row has succeeded."""
        return ""

    def carry_out(
        self, request: HttpRequest, done: str, operation: Callable[..., str | None], row_id: Any, **arguments: Any
    ) -> bool:
        """Call an operation in the user's name, and show its message. False if it was refused."""
        try:
            done = operation(row_id, user=request.user, **arguments) or done
        except NotAllowed as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
            return False
        self.message_user(request, done, messages.SUCCESS, self.tags_of(request, row_id))
        return True


class StandingsAdmin(ConsoleAdmin):
    """A list without filters and pages, of things that mostly have no row."""

    list_template: str

    def lines(self) -> dict[str, Any]:
        """The context of the list."""
        raise NotImplementedError

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request) or request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        context = {**self.admin_site.each_context(request), "opts": self.opts, "title": self._title_of_list()}
        return TemplateResponse(request, self.list_template, {**context, **self.lines(), **(extra_context or {})})


def _seen(request: HttpRequest, verb: Verb, row: Any) -> dict[str, list[int]]:
    """The ids that the verb's page showed: the current ones for a GET, those sent back for a POST."""
    if request.method != "POST":
        return {name: ids_of(row) for name, ids_of in verb.seen}
    sent = {name: request.POST.getlist(name) for name, _ in verb.seen}
    for name, ids in sent.items():
        if not all(map(is_number, ids)):
            raise BadRequest(f"{name} holds numbers.")
    return {name: [int(each) for each in ids] for name, ids in sent.items()}
