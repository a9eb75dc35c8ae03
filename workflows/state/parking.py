"""PARKING: on what workflows are parked, and what such a workflow waits for, in words."""

from __future__ import annotations

from workflows.definition import titled_step
from workflows.models import Service
from workflows.models.workflow import PARKED_SQL
from workflows.postgres.skip_scan import skip_scan
from workflows.postgres.statements import fetch_all

_NAMES = skip_scan("parked", "workflows_workflow", PARKED_SQL, "parked_on")


def names() -> list[str]:
    """The services on which workflows are parked: by as many steps down the index as there are services."""
    return [name for (name,) in fetch_all(f"WITH RECURSIVE {_NAMES} SELECT parked_on FROM parked")]  # noqa: S608 (ours)


def turn_at(service: str) -> str:
    """What a workflow waits for whose service has as many calls as it may have."""
    return f"its turn at the service {service}, which has as many calls as it may have"


def mend_of(row: Service) -> str:
    """What workflows wait for that are parked on a cause, in words; empty for a service."""
    return f"the mend of {titled_step(row.workflow_type, row.step)}, where many fail" if row.is_cause else ""
