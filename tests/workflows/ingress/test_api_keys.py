import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from tests.clock import Clock, standing_still
from tests.servers import connecting_to
from workflows.ingress import api_keys
from workflows.ingress.api_keys import KeyTable
from workflows.models import ApiKey
from workflows.postgres.deadlines import DatabaseUnavailable

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return standing_still(monkeypatch, "workflows.ingress.api_keys", "workflows.ingress.bounds")


def client_of(table: KeyTable, key: str) -> str | None:
    found = table.key_of(key)
    return found and found.client


def client_at_once(table: KeyTable, key: str) -> str | None:
    found = table.key_at_once(key)
    return found and found.client


def test_only_its_hash_is_stored() -> None:
    key = api_keys.create("shop")
    row = ApiKey.objects.get()
    assert row.prefix == key[:15]
    assert bytes(row.digest) == api_keys.digest_of(key)
    assert len(key) > 15 + 30


@pytest.mark.parametrize("name", ["", " ", "a ", " a", "a\nb", "a\x00", "é", "x" * 101, "<b>"])
def test_a_name_that_could_confuse_is_refused(name: str) -> None:
    with pytest.raises(CommandError, match="letters, digits"):
        call_command("createapikey", name)
    assert not ApiKey.objects.exists()


def test_two_keys_of_a_name_are_one_client() -> None:
    keys = [api_keys.create("shop"), api_keys.create("shop")]
    assert keys[0] != keys[1]
    assert {client_of(KeyTable(), key) for key in keys} == {"shop"}


def test_a_known_key_costs_no_query(clock: Clock) -> None:
    table, key = KeyTable(), api_keys.create("shop")
    assert client_of(table, key) == "shop"
    clock.now += api_keys.MAX_AGE_SECONDS - 0.1
    with CaptureQueriesContext(connection) as queries:
        assert client_of(table, key) == client_at_once(table, key) == "shop"
    assert len(queries) == 0
    clock.now += 0.2
    assert client_at_once(table, key) is None


def test_a_revocation_made_elsewhere_is_known_within_the_stated_time(clock: Clock) -> None:
    table, key = KeyTable(), api_keys.create("shop")
    assert client_of(table, key) == "shop"
    ApiKey.objects.update(revoked_at=Now())
    assert client_of(table, key) == "shop"
    clock.now += api_keys.MAX_AGE_SECONDS + 0.1
    assert client_of(table, key) is None


def test_a_key_made_elsewhere_is_known_at_once(clock: Clock) -> None:
    table = KeyTable()
    assert client_of(table, "onramp_other") is None
    assert client_of(table, api_keys.create("shop")) == "shop"


def test_a_storm_of_junk_keys_is_no_storm_of_queries(clock: Clock) -> None:
    table = KeyTable()
    with CaptureQueriesContext(connection) as queries:
        for number in range(1000):
            clock.now += 0.001
            assert client_of(table, f"onramp_{number}") is None
    assert len(queries) <= api_keys.REREADS_IN_A_ROW + api_keys.REREADS_PER_SECOND + 1
    key = api_keys.create("shop")
    clock.now += 1 / api_keys.REREADS_PER_SECOND
    assert client_of(table, key) == "shop"


@pytest.mark.parametrize("key", ["", "onramp_", "é", "\udcff", "x" * 8000])
def test_a_strange_key_is_only_unknown(key: str) -> None:
    assert client_of(KeyTable(), key) is None


@pytest.mark.django_db(transaction=True)
def test_while_the_database_is_away_a_known_key_stays_known_and_no_key_is_called_unknown(
    clock: Clock,
) -> None:
    table, key = KeyTable(), api_keys.create("shop")
    assert client_of(table, key) == "shop"
    with connecting_to(port=1):
        assert client_of(table, key) == "shop"
        with pytest.raises(DatabaseUnavailable):
            client_of(table, "onramp_perhaps_new")
        clock.now += api_keys.MAX_AGE_SECONDS + 0.1
        for _ in range(3):
            with pytest.raises(DatabaseUnavailable):
                client_of(table, key)
    clock.now += api_keys.RETRY_SECONDS
    assert client_of(table, key) == "shop"
