"""OUTAGES, for authors of steps and clients: where the client of a service reports the result of each of its calls."""

from workflows.errors import unavailable_service
from workflows.features.outages.calls import Call, call_to

__all__ = ["Call", "call_to", "unavailable_service"]
