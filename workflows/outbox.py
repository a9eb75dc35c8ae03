"""OUTBOX, for authors of steps: events for others, which commit together with what they tell of (docs/outbox.md)."""

from workflows.features.outbox.events import publish

__all__ = ["publish"]
