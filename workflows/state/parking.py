"""PARKING: which services and causes have parked workflows, and the words for what such a workflow waits for."""

from __future__ import annotations

from django.utils.text import capfirst

from workflows.definition import titled_step
from workflows.models import Service
from workflows.models.workflow import PARKED_SQL
from workflows.postgres.often import fetch_all
from workflows.postgres.skip_scan import skip_scan

_NAMES = skip_scan("parked", "workflows_workflow", PARKED_SQL, "parked_on")
# The same as a subquery with the column `service`.
NAMES = f"(WITH RECURSIVE {_NAMES} SELECT parked_on AS service FROM parked)"  # noqa: S608 (ours)


def names() -> list[str]:
    """The names on which workflows are parked. Takes as many steps down the index as there are names."""
    return [name for (name,) in fetch_all(f"WITH RECURSIVE {_NAMES} SELECT parked_on FROM parked")]  # noqa: S608 (ours)


def services() -> list[str]:
    """As `names`, without the causes."""
    no_cause = "NOT EXISTS (SELECT FROM workflows_service WHERE name = parked_on AND step <> '')"
    found = fetch_all(f"WITH RECURSIVE {_NAMES} SELECT parked_on FROM parked WHERE {no_cause}")  # noqa: S608 (ours)
    return [name for (name,) in found]


def turn_at(service: str) -> str:
    """The words for a workflow whose service has as many calls as it may have."""
    return f"its turn at the service {service}, which has as many calls as it may have"


def mend_of(row: Service) -> str:
    """The words for a workflow that is parked on a cause; empty for a service."""
    return f"the mend of {titled_step(row.workflow_type, row.step)}, where many fail" if row.is_cause else ""


def label_of(row: Service) -> str:
    """On what workflows are parked, in a list to choose from."""
    return f"{capfirst(titled_step(row.workflow_type, row.step))}: {row.code}" if row.is_cause else row.name
