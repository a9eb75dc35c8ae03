"""SEARCHES: what a session keeps of its newest searches, so that *Back* leads to what was found.

What was found is numbers of workflows, and the kinds of keys that found them. What was typed is sealed, under a key
that the database does not have; without the extra `sealing` it is not kept. Sign-out deletes the session with all of
it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID, uuid4

from django.contrib.sessions.backends.base import SessionBase
from django.views.decorators.debug import sensitive_variables

from workflows.extras import ExtraMissing
from workflows.sealing import envelopes
from workflows.search.find import LONGEST, Found

# How many searches a session keeps: people go back to the last one, or the one before.
KEPT = 5
_NAME = "searches"


@dataclass(frozen=True, slots=True)
class Search:
    """What was typed, empty if that is not known any more; and what was found, None if it could be nothing."""

    typed: str
    found: Found | None


@sensitive_variables("typed")
def keep(session: SessionBase, typed: str, found: Found | None) -> str:
    """Keep a search. Returns its name, by which the page's address says nothing of it."""
    name = uuid4()
    sealed = ""
    with suppress(ExtraMissing):
        sealed = envelopes.seal(typed[: LONGEST + 1], row=name, field=_NAME)
    newest = list(session.get(_NAME, {}).items())[1 - KEPT :]
    session[_NAME] = {**dict(newest), name.hex: {"typed": sealed, "found": asdict(found) if found else None}}
    return name.hex


def kept(session: SessionBase, name: str) -> Search | None:
    """The search of this name; None if the session does not keep it."""
    stored: dict[str, Any] | None = session.get(_NAME, {}).get(name)
    if stored is None:
        return None
    typed = ""
    with suppress(ExtraMissing, envelopes.Unreadable):
        typed = envelopes.unseal(stored["typed"], row=UUID(name), field=_NAME)
    return Search(typed, _found(**stored["found"]) if stored["found"] else None)


def _found(by: dict[str, list[str]], **stored: Any) -> Found:
    """JSON's names are texts."""
    return Found(by={int(pk): labels for pk, labels in by.items()}, **stored)
