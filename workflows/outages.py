"""OUTAGES, for authors of steps and clients: where the client of a service reports the result of each of its calls."""

from workflows.features.outages.calls import Call, call_to, unavailable_service

__all__ = ["Call", "call_to", "unavailable_service"]
