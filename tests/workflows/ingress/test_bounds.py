"""What bounds a key: how fast it may send, until when it is valid, and its successor."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.clock import Clock, standing_still
from workflows.health.api_keys import expiring
from workflows.ingress import api_keys, bounds
from workflows.ingress.api_keys import KeyTable
from workflows.models import ApiKey

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return standing_still(monkeypatch, "workflows.ingress.bounds", "workflows.ingress.api_keys")


def run(*arguments: str) -> str:
    """The last line that the command prints."""
    call_command(*arguments, stdout=(out := StringIO()), stderr=StringIO())
    return out.getvalue().splitlines()[-1]


def row_of(key: str) -> ApiKey:
    return ApiKey.objects.get(digest=api_keys.digest_of(key))


def test_a_limit_lets_a_second_through_at_once_and_then_says_how_long_to_wait(clock: Clock) -> None:
    limit = bounds.Limit(4)
    assert [limit.seconds_to_wait() for _ in range(6)] == [0, 0, 0, 0, 1, 1]
    clock.now += 0.5
    assert [limit.seconds_to_wait() for _ in range(3)] == [0, 0, 1]
    clock.now += 3600
    assert [limit.seconds_to_wait() for _ in range(5)] == [0, 0, 0, 0, 1]
    rare = bounds.Limit(0.1)
    assert [rare.seconds_to_wait() for _ in range(2)] == [0, 10]


def test_a_limit_goes_on_counting_when_the_table_is_read_again_and_follows_a_change(clock: Clock) -> None:
    table, key = KeyTable(), api_keys.create("shop", per_second=1)

    def wait() -> int | None:
        found = table.key_of(key)
        assert found is not None
        return found.limit and found.limit.seconds_to_wait()

    assert [wait(), wait()] == [0, 1]
    table.invalidate()
    assert wait() == 1
    ApiKey.objects.update(per_second=None)
    table.invalidate()
    assert wait() is None


def test_a_command_bounds_a_key_and_says_what_it_does_not_know() -> None:
    made = run("createapikey", "shop", "--type", "onboarding", "--verb", "cancel", "--verb", "read", "--expires", "2h")
    row = row_of(made)
    assert (row.types, row.verbs, row.may, row.bounds) == (["onboarding"], ["read"], ["cancel"], row.bounds)
    assert row.expires_at is not None
    assert timedelta(hours=1) < row.expires_at - timezone.now() <= timedelta(hours=2)
    assert "read, cancel; type onboarding" in run("listapikeys")
    for options in (
        ("--type", "nothing"),
        ("--queue", "nowhere"),
        ("--per-second", "0"),
        ("--per-second", "inf"),
        ("--per-second", "1e-320"),
        ("--expires", "9999-12-31"),
        ("--expires", "2020-01-01"),
        ("--verb", "retry"),
    ):
        with pytest.raises(CommandError):
            run("createapikey", "shop", *options)
    assert ApiKey.objects.count() == 1


def test_a_successor_has_the_same_bounds_and_both_are_valid_until_the_old_one_expires() -> None:
    old = run(
        "createapikey", "shop", "--type", "onboarding", "--tenant", "north", "--may", "cancel", "--expires", "90d"
    )
    new = run("rotateapikey", old, "--keep", "12h")
    before, after = row_of(old), row_of(new)
    assert before.expires_at is not None
    assert after.expires_at is not None
    assert (before.name, before.bounds) == (after.name, after.bounds)
    assert timedelta(hours=11) < before.expires_at - timezone.now() <= timedelta(hours=12)
    assert timedelta(days=89) < after.expires_at - timezone.now() <= timedelta(days=91)
    run("rotateapikey", str(before.pk), "--keep", "2d", "--expires", "5d")
    assert row_of(old).expires_at == before.expires_at, "it never lives longer for that"
    ApiKey.objects.filter(pk=before.pk).update(expires_at=timezone.now())
    first, second = KeyTable().key_of(old), KeyTable().key_of(new)
    assert first is not None
    assert second is not None
    assert (first.is_expired, second.is_expired) == (True, False)
    for keep in ("-1h", "9999999d"):
        with pytest.raises(CommandError, match="An old key is kept for"):
            run("rotateapikey", str(after.pk), f"--keep={keep}")
    assert "shop" in run("listapikeys")
    api_keys.revoke(before)
    with pytest.raises(CommandError, match="revoked"):
        run("rotateapikey", str(before.pk))


def test_the_last_use_is_written_once_an_hour_by_all_processes_together(clock: Clock) -> None:
    key = api_keys.create("shop")
    tables = KeyTable(), KeyTable()

    def use(table: KeyTable) -> None:
        found = table.key_of(key)
        assert found is not None
        if table.claim_note(found):
            table.note_use(found)

    use(tables[0])
    first = row_of(key).last_used_at
    assert first is not None
    use(tables[1])
    assert row_of(key).last_used_at == first, "another process has written it"
    ApiKey.objects.update(last_used_at=first - timedelta(hours=2))
    use(tables[0])
    assert row_of(key).last_used_at == first - timedelta(hours=2), "this process has written it"
    clock.now += api_keys.NOTED_EVERY_SECONDS
    use(tables[0])
    noted = row_of(key).last_used_at
    assert noted is not None
    assert noted > first


def test_a_key_is_told_of_before_it_expires_and_while_it_is_tried_afterwards() -> None:
    now, day = timezone.now(), timedelta(days=1)
    key = row_of(api_keys.create("shop", expires_at=now + 20 * day))

    def told(**changed: object) -> list[int]:
        ApiKey.objects.filter(pk=key.pk).update(**changed)
        return [days for days in (30, 7, 0) if expiring(days).filter(pk=key.pk).exists()]

    assert told() == [30]
    assert told(expires_at=now + 6 * day) == [30, 7]
    assert told(expires_at=now + 31 * day) == []
    api_keys.rotate(key)
    assert told(last_used_at=now - 2 * day) == []  # it has a successor, which is used in its place
    assert told(last_used_at=now) == [30, 7]  # and yet it is used
    assert told(expires_at=now - timedelta(hours=1)) == [30, 7, 0]  # its client is refused
    assert told(last_used_at=now - timedelta(hours=2)) == []  # nobody tries it
    assert told(last_used_at=now, revoked_at=now) == []
