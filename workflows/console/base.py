"""What all pages of the console have in common: they show rows, and only verbs change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django import forms
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
from workflows.errors import NotAllowed
from workflows.telling import words
from workflows.templatetags.cards import timed
from workflows.wording import of_person

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


T = TypeVar("T")

KEPT = of_person("Kept in the history, with your name. No patient data, please.")


def reason_field(help_text: str = KEPT, **options: Any) -> forms.CharField:
    return forms.CharField(max_length=500, widget=forms.Textarea(attrs={"rows": 3}), help_text=help_text, **options)


# More than a team has, and as many as a list can show.
COLLEAGUES_SHOWN = 500


def colleague_field(users: Any, help_text: str = "") -> forms.TypedChoiceField:
    """A field to choose one of these users. No user is preselected."""
    shown = users.order_by(users.model.USERNAME_FIELD)[:COLLEAGUES_SHOWN]
    return forms.TypedChoiceField(
        label="Colleague",
        coerce=int,
        choices=[("", "Choose somebody"), *((user.pk, user.get_username()) for user in shown)],
        widget=forms.Select(attrs={"autofocus": True}),
        help_text=help_text,
    )


class ReasonForm(forms.Form):
    """The form of a verb. `row` is its row, or None for several rows."""

    reason = reason_field()

    def __init__(self, *args: Any, row: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row


class OptionalReasonForm(ReasonForm):
    """The form of a verb that refuses, undoes and answers nothing: the reason is optional."""

    reason = reason_field(f"If there is something to say. {KEPT}", required=False)


class RetryForm(ReasonForm):
    """The usual reasons, and a field for any other."""

    USUAL = ("The cause is mended.", of_person("The patient has asked for it."), "Probably temporary; try once more.")

    why = forms.ChoiceField(
        label="Why",
        choices=[*((usual, usual) for usual in USUAL), ("other", "Another reason")],
        widget=forms.RadioSelect,
    )
    reason = reason_field(label="Another reason", required=False)
    field_order = ("why", "reason")

    def clean(self) -> dict[str, Any]:
        """Only the reason: the chosen one, or the typed one."""
        cleaned = super().clean() or self.cleaned_data
        why, written = cleaned.pop("why", ""), cleaned.get("reason", "").strip()
        if why == "other" and not written:
            self.add_error("reason", "Say why.")
        cleaned["reason"] = written if why == "other" else " ".join(filter(None, (why, written)))
        return cleaned


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation on a row: a button on the row's page, a page that says what will happen, and a POST.

    `applies`: whether the row's state allows it. `why_not`: why this user, who has the permission, may not do it to
    this row; the page says so instead of showing the button. `consequences`: what will happen, in sentences. `done`:
    the message afterwards, unless the operation returns one. `seen`: the operation's arguments for the ids that the
    page showed, so that it can check whether they have changed. `asks`: the page's title, where the label and the row's
    name do not make a sentence; `{}` is that name. `form` asks for the operation's arguments. `dangerous`: it takes
    something away from a patient, and looks like it. `main`: what the row most likely needs; the first one possible is
    the page's primary button. `rare`: a link instead of a button. `permission`: one of several is enough. `shows`: the
    answer to the POST shows what the operation returns, with this sentence below. `key`: of the keyboard, for its page.
    """

    slug: str
    label: str
    permission: str | tuple[str, ...]
    operation: Callable[..., Any]
    applies: Callable[[Any], bool]
    consequences: Callable[[Any], Iterable[str]]
    done: str
    seen: tuple[tuple[str, Callable[[Any], list[int]]], ...] = ()
    asks: str = ""
    why_not: Callable[[Any, Any], str] = lambda row, user: ""
    form: type[ReasonForm] = ReasonForm
    dangerous: bool = False
    rare: bool = False
    main: bool = False
    shows: str = ""
    key: str = ""

    def is_for(self, user: Any) -> bool:
        permissions = (self.permission,) if isinstance(self.permission, str) else self.permission
        return any(map(user.has_perm, permissions))


def read_once(row: Any, name: str, read: Callable[[], T]) -> T:
    """What `read` returns about a row, kept on the row under this name: it is read once for a page."""
    kept = vars(row)
    if name not in kept:
        kept[name] = read()
    found: T = kept[name]
    return found


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
        possible = [v for v in verbs if v.applies(row) and v.is_for(request.user)]
        barred = {verb: why for verb in possible if (why := verb.why_not(row, request.user))}
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
                "verbs": [(verb, self.url_of(verb.slug, row)) for verb in possible if verb not in barred],
                "main": next((v for v in possible if v.main and v not in barred), None),
                "barred": [(verb.label, why) for verb, why in barred.items()],
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
            verb=verb,
            asks=(verb.asks or f"{verb.label} {{}}").format(self.name_of(row)),
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
