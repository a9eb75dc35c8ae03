"""LIFECYCLE EVENTS: a definition publishes that its workflows are complete, have failed, or wait for a person.

They are stored in the transaction of the change, on every path to that state. FAILED is published when nothing is left
to undo, and again, as a new event, after a retry or a retracted answer that fails again. An event contains what `GET
/v1/submissions/KEY` answers, and nothing more.
"""

from __future__ import annotations

import json

from django.core.serializers.json import DjangoJSONEncoder

from workflows.definition import definitions
from workflows.features.outbox import events
from workflows.features.outbox.destinations import taking
from workflows.models import State, Wait, Workflow
from workflows.models.clock import microseconds
from workflows.telling.status_for_clients import TOLD, open_wait, told_to_client


def topic_of(what: str) -> str:
    return f"{events.OURS}{what}"


def tell(workflow: Workflow, what: str) -> None:
    """Publish that a workflow is now `what`, one of `definition.LIFECYCLE`, if its definition says so."""
    definition = definitions().get(workflow.workflow_type)
    if definition is None or what not in definition.publishes or not taking(topic_of(what)):
        return
    row = Workflow.objects.with_state().only(*TOLD).get(pk=workflow.pk)
    if what == "waiting":
        wait = open_wait(row)
        # Clients do not see the questions to our staff during an undo or an outage.
        if wait is None or wait.kind != Wait.Kind.APPROVAL or row.compensating or row.parked_on:
            return
        row.state, key = State.WAITING, f"wait {wait.pk}"  # its attempt is not closed yet
    elif what == "completed":  # only once: after a failover that lost it, it is the same event again
        key = ""
    else:
        assert row.completed_at is not None
        key = str(microseconds(row.completed_at))
    body = json.loads(json.dumps(told_to_client(row), cls=DjangoJSONEncoder))
    events.store(row.pk, topic_of(what), body, key=key)
