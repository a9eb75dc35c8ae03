"""What topics say in the tests of `manage.py consumekafka`, who waits for it, and what has become a signal."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from tests.kafka import Consumekafka
from tests.processes import until
from tests.workflows import rows
from workflows.models import Signal, Workflow

CANARY = "canary-in-the-payload"


def fact(name: str = "account.created", **fields: Any) -> dict[str, Any]:
    return {"name": name, "payload": {"account": CANARY}, **({"linking_id": "L-1"} | fields)}


def waiting(**fields: Any) -> Workflow:
    later = timezone.now() + timedelta(hours=1)
    return rows.workflow(**{"invisible_until": later, "wake_on": ["account.created"], **fields})


def is_due(workflow: Workflow) -> bool:
    return Workflow.objects.filter(pk=workflow.pk, invisible_until__lte=timezone.now()).exists()


def told() -> list[tuple[str, str]]:
    return list(Signal.objects.order_by("id").values_list("name", "dedupe_key"))


def until_told(count: int, relay: Consumekafka) -> None:
    until(lambda: Signal.objects.count() >= count, what=lambda: relay.output)
