"""The pages of bulk operations: what one would do, its progress, the outcome of each item, and who may stop it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString

from workflows.console import links
from workflows.console.base import ConsoleAdmin, time_column
from workflows.console.home import First
from workflows.console.paging import KeysetList, is_number
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import results as bulk_results
from workflows.features.bulk import telling as bulk_operations
from workflows.features.bulk.page_verbs import UNDER_WAY, VERBS
from workflows.models import BulkItem, BulkOperation
from workflows.operations.bulk_verbs import verbs
from workflows.telling import words

State, Outcome = BulkOperation.State, BulkItem.Outcome

ITEMS_SHOWN = 50


class _Followed(KeysetList):
    """Adds to each row its items' outcomes and what became of them: None where there are too many items to check."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        followed = list(bulk_results.few_enough(self.result_list))
        running = [row for row in self.result_list if row.state in UNDER_WAY]
        counted, became = bulk.outcomes(*followed, *running), bulk_results.became(*followed)
        for row in self.result_list:
            row.counted, row.became = counted.get(row.pk, {}), became.get(row.pk)


@admin.register(BulkOperation)
class BulkOperationAdmin(ConsoleAdmin):
    list_display = ("number", "what", "badge", "progress", "became", "asked_by", "asked", "why")
    list_select_related = ("asked_by",)
    ordering = ("-id",)
    page_template = "admin/workflows/bulk_operation/page.html"
    identity = ("asked_at",)
    verbs = VERBS
    asked = time_column("Asked", "asked_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[BulkOperation]:
        """Leaves out operations whose verb only a later release knows."""
        return BulkOperation.objects.filter(verb__in=verbs()).select_related("asked_by", "approved_by")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetList]:
        return _Followed

    def name_of(self, row: BulkOperation) -> str:
        return bulk_operations.name_of(row)

    def render(self, request: HttpRequest, template: str, row: Any, **context: Any) -> TemplateResponse:
        if context.get("verb") in VERBS and verbs()[row.verb].takes_away:
            context["verb"] = replace(context["verb"], dangerous=True)
        return super().render(request, template, row, **context)

    def page(self, request: HttpRequest, row: BulkOperation) -> dict[str, Any]:
        assert request.user.is_authenticated
        counted, became = bulk.outcomes(row)[row.pk], bulk_results.became(row)[row.pk]
        chosen = {name: request.GET[name] for name in ("outcome", "became") if name in request.GET}
        items = list(_items(row, chosen, request.GET.get("after", ""))[: ITEMS_SHOWN + 1])
        whys = row.items.exclude(why="").values_list("outcome", "why").annotate(number=Count("pk")).order_by("-number")
        verb, tone = verbs()[row.verb], bulk_operations.tone(row, counted, became)
        model = verb.model._meta
        return {
            "title": self.what(row),
            "badge": words.badge(tone or f"bulk-{row.state}", State(row.state).label),
            "tone": tone or row.state,
            "standing": bulk_operations.sentence(row, counted, became),
            "ended": bulk_operations.results(row, became) or State(row.state).label,
            "dealt_with": row.selected - counted[Outcome.OPEN],
            "counts": list(counts_of(row, counted, became)),
            "chosen": urlencode(chosen),
            "whys": [(each, bulk_operations.label(row, of).lower(), why) for of, why, each in whys],
            "facts": facts(row),
            "is_at_rest": row.state not in UNDER_WAY and not bulk_results.OPEN & {*became},
            "items": [(item, _badges(row, item)) for item in items[:ITEMS_SHOWN]],
            "what": verb.what,
            "page_of_item": f"admin:workflows_{model.model_name}_change",
            "sees_items": request.user.has_perm(f"workflows.view_{model.model_name}"),
            "next": items[ITEMS_SHOWN - 1].pk if len(items) > ITEMS_SHOWN else None,
            "log": _log(row),
        }

    # --- Columns --------------------------------------------------------------------------------

    @admin.display(description="What")
    def what(self, row: BulkOperation) -> str:
        return self.name_of(row).capitalize()

    @admin.display(description="State")
    def badge(self, row: Any) -> SafeString:
        tone = "" if row.became is None else bulk_operations.tone(row, row.counted, row.became)
        return words.badge(tone or f"bulk-{row.state}", State(row.state).label)

    @admin.display(description="Dealt with")
    def progress(self, row: Any) -> str:
        """How many items are dealt with; empty unless the operation is running or paused."""
        if row.state not in (State.RUNNING, State.PAUSED):
            return ""
        return f"{row.selected - row.counted[Outcome.OPEN]:,} of {row.selected:,}"

    @admin.display(description="What became of them")
    def became(self, row: Any) -> str:
        if row.became is None:
            return "see its page"
        told = bulk_operations.results(row, row.became), *bulk_operations.not_done(row, row.counted)
        return ", ".join(filter(None, told))

    @admin.display(description="Asked by")
    def asked_by(self, row: BulkOperation) -> str:
        return row.asked_by.get_username()

    @admin.display(description="Reason")
    def why(self, row: BulkOperation) -> str:
        return words.cut(row.reason)


def _items(row: BulkOperation, chosen: Mapping[str, str], after: str) -> QuerySet[Any]:
    items: QuerySet[Any] = row.items.order_by("id")
    if bulk_results.is_followed(row.verb):
        items = bulk_results.with_results(items, row.verb)
        if chosen.get("became") in bulk_operations.BECAME:
            items = items.filter(became=chosen["became"], outcome=Outcome.DONE)
    if (outcome := chosen.get("outcome", "").upper()) in Outcome.__members__:
        items = items.filter(outcome=Outcome[outcome])
    return items.filter(id__gt=int(after)) if is_number(after) else items


_TONES = {Outcome.OPEN: "wait", Outcome.DONE: "good", Outcome.SKIPPED: "wait", Outcome.FAILED: "bad"}


def counts_of(
    row: BulkOperation, counted: Mapping[str, int], became: Mapping[str, int]
) -> Iterator[tuple[str, str, str, int, str]]:
    """The counts of outcomes and results: the address's parameter and value, then label, number and tone."""
    for each in Outcome:
        is_told_below = each == Outcome.DONE and bulk_results.is_followed(row.verb)
        tone = _TONES[each] if counted[each] and not is_told_below else ""
        yield "outcome", each.name.lower(), bulk_operations.label(row, each), counted[each], tone
    for name in bulk_operations.BECAME:
        if name in became:
            result = bulk_operations.result(row, name).capitalize()
            yield "became", name, result, became[name], bulk_operations.tone_of(row, name)


def _badges(row: BulkOperation, item: Any) -> list[SafeString]:
    label = bulk_operations.label(row, item.outcome)
    if item.outcome != Outcome.DONE or not bulk_results.is_followed(row.verb):
        return [words.badge(f"item-{item.outcome or 'open'}", label)]
    result = bulk_operations.result(row, item.became).capitalize()
    return [words.badge("item-taken", label), words.badge(bulk_operations.tone_of(row, item.became), result)]


def _log(row: BulkOperation) -> QuerySet[LogEntry]:
    """What people did with the operation, newest first."""
    of_these = ContentType.objects.get_for_model(BulkOperation)
    return LogEntry.objects.filter(content_type=of_these, object_id=str(row.pk)).select_related("user").order_by("-id")


# --- In words -------------------------------------------------------------------------------------------


def awaiting(user: User) -> list[tuple[BulkOperation, str]]:
    """The operations that wait for this user as the second person, each with a sentence."""
    return [
        (row, f"{row.asked_by.get_username()} asks for the {bulk_operations.name_of(row)}: {words.ended(row.reason)}")
        for row in bulk.to_approve(user).select_related("asked_by")[:ITEMS_SHOWN]
    ]


def first_lines(user: User) -> list[First]:
    """The operations that wait for this user, as lines on Home."""
    return [
        First(sentence, links.bulk_operation(row.pk), State.ASKED.label, words.age_of(row.asked_at))
        for row, sentence in awaiting(user)
    ]


def facts(row: BulkOperation) -> list[tuple[str, str]]:
    return [
        ("Chosen by", row.chosen_by),
        ("Asked by", f"{row.asked_by.get_username()}, at {words.clock(row.asked_at)}"),
        ("Approved by", row.approved_by.get_username() if row.approved_by else ""),
        (
            "To",
            to.get_username() if (to := get_user_model().objects.filter(pk=row.arguments.get("to")).first()) else "",
        ),
        ("Reason", row.reason),
        ("Pace", f"{row.pace} a second at the most"),
        ("Ended", words.clock(row.ended_at) if row.ended_at else ""),
    ]
