"""OUTAGES: an outage of a service that workflows call costs time, and never a verdict.

- `calls`: the seam through which a client of a service says what each of its calls met.
- `circuits`: whether a service is called at all, which the workers find out together.
- `parking`: the workflows that wait for a service, and their release when it is back.
"""

from workflows.outages.calls import Call, call_to, unavailable_service

__all__ = ["Call", "call_to", "unavailable_service"]
