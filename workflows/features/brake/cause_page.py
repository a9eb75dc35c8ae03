"""A cause in words: at which step many fail, since when, what waits for the mend, and what people may do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.text import capfirst

from workflows.console import links
from workflows.definition import undo_of
from workflows.features.brake import causes
from workflows.features.brake import operations as services
from workflows.features.brake.health import titled
from workflows.features.outages import circuits
from workflows.features.outages.circuits import CircuitState
from workflows.features.outages.health import Standing
from workflows.features.outages.service_page import workflows
from workflows.health import bounded
from workflows.models import CircuitEvent, Service
from workflows.models.failure import Cause
from workflows.operations.guards import SEE_SERVICES
from workflows.telling import consequences, words
from workflows.wording import name_of_code

# Where the words for a service's circuit do not fit.
LABELS = {CircuitState.OPEN: "Stopped", CircuitState.SUSPECTED: "Going on", CircuitState.CLOSED: "Going on"}
KINDS: Mapping[str, str] = {CircuitEvent.Kind.OPENED: "Stopped", CircuitEvent.Kind.CLOSED: "Going on"}


def named(name: str | None, user: Any) -> Service | None:
    """The cause of that name; None if there is none, or the user may not see it."""
    return Service.objects.filter(name=name).exclude(step="").first() if user.has_perm(SEE_SERVICES) else None


def is_undo(service: Service) -> bool:
    return service.step.startswith(undo_of(""))


def columns(row: Standing) -> dict[str, Any]:
    """What the list, and the page, say of a cause."""
    return {
        "name": capfirst(titled(row)),
        "type": words.workflow_type(row.service.workflow_type),
        "badge": words.badge(f"circuit-{row.state}", LABELS.get(row.state, row.state.label)),
        "since": "" if row.since is None else words.clock(row.since),
        "longest_since": words.clock(row.longest_since),
        "next_trial": next_trial(row),
    }


def next_trial(row: Standing) -> str:
    if row.is_called:
        return ""
    if row.service.elsewhere:
        return "by another release"
    if row.state == CircuitState.TRIED:
        return "now"
    if row.service.retry_at is None:
        return "none by itself"
    return "due" if circuits.is_trial_due(row.service) else words.clock(row.service.retry_at)


# --- The first sentences ------------------------------------------------------------------------


def sentence(row: Standing) -> str:
    """The first sentences of the page: since when many fail, what waits, and what happens next."""
    return " ".join(filter(None, (_brake(row), _waiting(row), _next(row))))


def _brake(row: Standing) -> str:
    service, since = row.service, f" since {words.clock(row.since)}" if row.since else ""
    match row.state:
        case CircuitState.HELD:
            until = words.until(service.retry_at)
            return f"Held by {service.held_by} until {until}: {words.ended(service.held_reason)}"
        case CircuitState.OPEN | CircuitState.TRIED:
            code = name_of_code(service.code)
            return f"Many workflows have failed at {titled(row)}{since}{_in_releases(service)} ({code})."
    return f"Workflows go on{since if row.state == CircuitState.CLOSED else ''}."


def _in_releases(service: Service) -> str:
    named = [each for each in service.releases if each]
    return f", in release {' and '.join(named)}" if named else ""


def _waiting(row: Standing) -> str:
    if row.is_called:
        return f"{workflows(row)} {_is(row)} being released." if row.parked.number else ""
    waits = "waits" if row.parked.number < 2 else "wait"
    if row.parked.number and is_undo(row.service):
        return f"{workflows(row)} {waits} to be reversed, and for refunds, until that is mended."
    return f"{workflows(row)} {waits} for the mend."


def _is(row: Standing) -> str:
    return "is" if row.parked.number == 1 else "are"


def _next(row: Standing) -> str:
    service = row.service
    if row.is_called:
        return ""
    if service.let_fail_until:
        by, reason = service.let_fail_by, words.ended(service.let_fail_reason)
        return f"What was parked by {words.clock(service.let_fail_until)} fails just now, as {by} has said: {reason}"
    if service.elsewhere:
        return "Workers of another release go on with the step, and those that have met the failure leave it alone."
    match row.state:
        case CircuitState.HELD:
            return "A workflow tries the step when the hold is over."
        case CircuitState.TRIED:
            return "A workflow tries the step just now."
    if service.retry_at is None:
        return "The step stops its workers, so none of this release tries it again by itself."
    if circuits.is_trial_due(service):
        return "A trial is due: a parked workflow makes it."
    return f"A workflow tries the step at {words.clock(service.retry_at)}."


# --- Its page -----------------------------------------------------------------------------------


def page(row: Standing) -> dict[str, Any]:
    service = row.service
    return {
        **columns(row),
        "title": f"Many fail at {titled(row)}",
        "standing": sentence(row),
        "asked": asked(service),
        "facts": facts(row),
        "failed": len(service.judged),
        "group_url": links.incident(Cause(service.workflow_type, service.step, service.code)),
        "failed_url": f"{reverse('admin:workflows_workflow_changelist')}?{urlencode({'cause': row.pk})}",
        "is_undo": is_undo(service),
        "tries_by_itself": service.code != causes.CRASHED,
        "about": "admin/workflows/brake/cause.html",
        "none_yet": "It was never stopped.",
    }


def asked(service: Service) -> str:
    """Who has asked to let fail what is parked; empty if nobody has."""
    if not service.asked_by:
        return ""
    return (
        f"{service.asked_by} asked at {words.clock(service.asked_at)} to let fail what is parked: "
        f"{words.ended(service.asked_reason)} Another user has to say so, too."
    )


def facts(row: Standing) -> list[tuple[str, str]]:
    service = row.service
    return [
        ("Type", words.workflow_type(service.workflow_type)),
        ("Step", service.step),
        ("Error", service.code),
        ("Release", ", ".join(filter(None, service.releases))),
        ("Next trial", next_trial(row)),
        ("Last failure", words.clock(service.failed_at) if service.failed_at else ""),
        ("Last released", f"{service.cohort} at {words.clock(service.released_at)}" if service.cohort else ""),
    ]


# --- What verbs do ------------------------------------------------------------------------------


def of_hold(row: Standing) -> list[str]:
    service = row.service
    return [
        "No workflow that a worker takes up from now on starts the step before that time. One that is running just now "
        "may.",
        "A workflow that reaches the step is parked, and goes on by itself afterwards. What it was charged stays, and "
        "no failure is counted.",
        *(["Workers of another release go on all the same."] if any(service.releases) else []),
        "When the time is over one workflow tries the step; if it passes, the others follow.",
        *(
            ["The step has stopped its workers: that trial may cost one more."]
            if service.code == causes.CRASHED
            else []
        ),
        *([f"This takes the place of the hold of {service.held_by}."] if service.held_by else []),
    ]


def of_try_now(row: Standing) -> list[str]:
    service = row.service
    instead = f" instead of at {words.clock(service.retry_at)}" if service.retry_at else ""
    crashes = service.code == causes.CRASHED
    return [
        f"One workflow that is parked tries the step at once{instead}.",
        "If it passes, what is parked is released: 1, then 2, then 4 and so on.",
        "If it fails as before, it is parked again: what it was charged stays, and nothing is reversed."
        + ("" if crashes else " The next trial follows within a minute or so."),
        *(["It may stop one more worker, and what that one has in hand starts again."] if crashes else []),
        *([f"The hold of {service.held_by} ends."] if service.held_by else []),
    ]


def of_let_fail(row: Standing) -> list[str]:
    parked = services.parked_to_fail(row.pk)
    number = bounded.count(parked)
    return [
        *_who_decides(row.service),
        f"{_number(number)} parked by then {'fails' if number == 1 else 'fail'}. What parks later still waits.",
        *consequences.of_let_fail(parked),
        "Each can be retried afterwards: what was reversed is then done again.",
    ]


def _number(number: int) -> str:
    return "The 1 workflow that is" if number == 1 else f"The {bounded.text(number)} workflows that are"


def _who_decides(service: Service) -> Iterator[str]:
    if service.asked_by:
        asked_at = words.clock(service.asked_at)
        yield f"{service.asked_by} asked for this at {asked_at}: {words.ended(service.asked_reason)} You decide."
    elif not services.lets_fail(service):
        yield f"Nothing happens yet: for more than {services.ALONE} workflows another user has to say so, too."
