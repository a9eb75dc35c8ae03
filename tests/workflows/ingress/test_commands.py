"""`manage.py`'s commands for API keys and for secrets of webhooks: what is made, shown and revoked."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any, NamedTuple

import pytest
from django.core.management import CommandError, call_command

from workflows.ingress import api_keys, webhooks
from workflows.ingress.api_keys import KeyTable
from workflows.models import ApiKey, WebhookSecret

pytestmark = pytest.mark.django_db


def run(command: str, *arguments: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command(command, *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


class Kind(NamedTuple):
    noun: str
    prefix: str
    shown: int  # characters of it that may be shown
    model: Any
    create: Callable[[str], str]
    opens: Callable[[str, str], bool]  # whether it lets this sender in
    unknown: tuple[str, ...]


def key_opens(sender: str, key: str) -> bool:
    found = KeyTable().key_of(key)
    return found is not None and found.client == sender


def secret_opens(sender: str, secret: str) -> bool:
    return webhooks.key_of(secret) in webhooks.keys_of(sender)


KINDS = [
    Kind("apikey", "onramp_", api_keys.PREFIX_LENGTH, ApiKey, api_keys.create, key_opens, ("onramp_nothing",)),
    Kind(
        "webhooksecret",
        "whsec_",
        webhooks.PREFIX_LENGTH,
        WebhookSecret,
        webhooks.create,
        secret_opens,
        ("whsec_nothing", "whsec_%"),
    ),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.noun)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def test_a_new_one_stands_alone_on_stdout_and_opens_the_door_to_its_sender(kind: Kind) -> None:
    out, err = run(f"create{kind.noun}", "parcels")
    made = out.strip()
    assert out == f"{made}\n"
    assert made.startswith(kind.prefix)
    assert "parcels" in err
    assert made not in err
    assert kind.opens("parcels", made)
    assert not kind.opens("others", made)


def test_they_are_listed_without_what_would_open_the_door(kind: Kind) -> None:
    made = kind.create("parcels")
    out, _ = run(f"list{kind.noun}s")
    assert made[: kind.shown] in out
    assert "parcels" in out
    assert made not in out


@pytest.mark.parametrize("named", ["number", "start", "whole"])
def test_one_is_revoked_by_its_number_by_its_start_or_whole_and_the_others_stay(kind: Kind, named: str) -> None:
    kept, made = kind.create("parcels"), kind.create("parcels")
    names = {"number": str(kind.model.objects.latest("id").pk), "start": made[: kind.shown], "whole": made}
    out, _ = run(f"revoke{kind.noun}", names[named])
    assert "is revoked" in out
    assert made not in out
    assert (kind.opens("parcels", made), kind.opens("parcels", kept)) == (False, True)
    assert "already" in run(f"revoke{kind.noun}", names[named])[0]
    assert "revoked 2" in run(f"list{kind.noun}s")[0]


def test_revoking_needs_to_know_which(kind: Kind) -> None:
    kind.create("parcels")
    kind.create("parcels")
    with pytest.raises(CommandError, match="More than one"):
        run(f"revoke{kind.noun}", kind.prefix)
    for unknown in (*kind.unknown, "999999", "9" * 30, "", "parcels"):
        with pytest.raises(CommandError, match="There is no such"):
            run(f"revoke{kind.noun}", unknown)
    assert not kind.model.objects.exclude(revoked_at=None).exists()
