"""The form of a hold: so many minutes, or a time that the user types and confirms in both time zones."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone

from workflows import times
from workflows.console.typed import TimeField
from workflows.console.verbs import ReasonForm
from workflows.operations.holding import LONGEST_HOLD, why_not_hold_until

MINUTES = {"15": "15 minutes", "30": "30 minutes", "60": "1 hour"}
TYPED = "until"


class HoldForm(ReasonForm):
    """No choice is preset. A typed time has to be confirmed once, with its end in both time zones.

    `what` is `done` until then, in the words of refusals. `minutes` has the choices.
    """

    minutes: Mapping[str, str] = MINUTES
    what, done = "a service", "held"
    how_long = forms.ChoiceField(label="Hold it for", widget=forms.RadioSelect, required=False)
    until = TimeField(label="Until", required=False)
    read = forms.CharField(widget=forms.HiddenInput, required=False)  # the typed time to confirm, in UTC
    field_order = ("how_long", "until", "read", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ends = [(key, f"{label}, until {times.both(_in(key))}") for key, label in self.minutes.items()]
        self.fields["how_long"].choices = [*ends, (TYPED, "Until another time")]  # type: ignore[attr-defined]
        most = LONGEST_HOLD.days
        self.fields["until"].help_text = f"By the clock of {times.zone()}. At most {most} days from now."

    def clean(self) -> dict[str, Any]:
        """The reason, and the end in UTC."""
        cleaned = super().clean() or self.cleaned_data
        key, typed, read = cleaned.pop("how_long", ""), cleaned.pop("until", None), cleaned.pop("read", "")
        if self.errors:
            return cleaned
        if key in self.minutes and typed:
            self.add_error("until", "Choose one: so many minutes, or a time.")
        elif key in self.minutes:
            cleaned["until"] = _in(key)
        elif typed is None:
            self.add_error("until" if key else "how_long", "Say until when.")
        elif why_not := why_not_hold_until(typed, now=timezone.now(), what=self.what, done=self.done):
            self.add_error("until", why_not)
        elif read != typed.isoformat():
            self._ask(typed)
        else:
            cleaned["until"] = typed
        return cleaned

    def _ask(self, typed: datetime) -> None:
        self.data = {**self.data.dict(), self.add_prefix("read"): typed.isoformat()}  # type: ignore[attr-defined]
        told = f"Nothing is {self.done} yet. That is until {times.both(typed)}"
        self.add_error(None, f"{told}: if it is right, press the button again.")


def _in(minutes: str) -> datetime:
    """The end of so many minutes, rounded up to a full minute, so that it is what the page shows."""
    end = timezone.now() + timedelta(minutes=int(minutes), seconds=59, microseconds=999_999)
    return end.replace(second=0, microsecond=0)
