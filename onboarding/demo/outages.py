"""What the demo reports about outages: their starts and ends, and how the parked workflows finished."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from uuid import UUID

from django.db.models import Max

from onboarding.demo.report import Expected, Result
from workflows.models import CircuitEvent, Event, State


class Outages:
    """Reports the outages since it was made, each fact once."""

    def __init__(self) -> None:
        self._told = CircuitEvent.objects.aggregate(last=Max("id"))["last"] or 0

    def news(self, workflows: Collection[int]) -> list[str]:
        """A sentence for each circuit that has opened or closed since the last call. `workflows` are the demo's."""
        sentences = []
        for event in CircuitEvent.objects.filter(id__gt=self._told).order_by("id"):
            self._told = event.pk
            match event.kind:
                case CircuitEvent.Kind.OPENED:
                    sentences.append(
                        f"The {event.service} service is down: {event.reason} No workflow calls it any more: "
                        "those that need it are parked, the others go on."
                    )
                case CircuitEvent.Kind.CLOSED:
                    number = len(parked(workflows).get(event.service, ()))
                    go_on = f"{_workflows(number)} parked meanwhile, and they go on by themselves, a few at first."
                    sentences.append(f"The {event.service} service answers again. {go_on if number else ''}".rstrip())
        return sentences


def summary(expected: Mapping[UUID, Expected], found: Mapping[UUID, Result]) -> list[str]:
    """A sentence for each service about how its parked workflows finished, and why others failed."""
    keys = {result.id: key for key, result in found.items()}
    sentences = []
    for service, workflows in sorted(parked(keys).items()):
        wrong = sum(found[keys[each]].state != expected[keys[each]].state for each in workflows)
        verdict = f"{wrong} of them are not where they should be" if wrong else "All of them went on when it was back"
        sentences.append(f"{_workflows(len(workflows))} parked while the {service} service was down. {verdict}.")
    if not sentences:
        sentences.append("The outage was over before a workflow had to be parked for it.")
    refused = Counter(found[key].code for key in found if found[key].state == expected[key].state == State.FAILED)
    if refused:
        codes = ", ".join(f"{code} {number}" for code, number in refused.most_common())
        sentences.append(f"Those that failed should have: they were refused ({codes}).")
    return sentences


def parked(workflows: Collection[int]) -> dict[str, set[int]]:
    """Which of these workflows were parked, by the service that they waited for."""
    events = Event.objects.filter(kind=Event.Kind.PARKED, workflow__in=list(workflows))
    found: dict[str, set[int]] = {}
    for workflow, detail in events.values_list("workflow", "detail"):
        found.setdefault(detail["service"], set()).add(workflow)
    return found


def _workflows(number: int) -> str:
    return "1 workflow was" if number == 1 else f"{number} workflows were"
