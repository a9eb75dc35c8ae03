import base64
import io
import time
from typing import Any
from unittest.mock import patch

import pytest
from django.core.management import CommandError
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from tests.workflows.ingress.test_commands import run
from workflows.ingress import verifying, webhooks
from workflows.ingress.verifying import Signed, StandardWebhooks, Unverified, sign
from workflows.ingress.webhooks import keys_of
from workflows.models import DataKey, WebhookSecret

pytestmark = pytest.mark.django_db

# The known answer in the tests of the specification's own libraries.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = "1614265330"
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

key_of = StandardWebhooks().key_of


def signed(signatures: str, *, id: str = ID, timestamp: str = TIMESTAMP) -> Signed:
    with patch.object(verifying, "time", lambda: float(TIMESTAMP)):
        headers = {"webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signatures}
        return StandardWebhooks().read(headers)


OTHER_SECRET = "whsec_" + base64.b64encode(b"x" * 24).decode()


def is_signed(signatures: str = SIGNATURE, *secrets: str, body: bytes = BODY) -> bool:
    keys = [key_of(secret) for secret in secrets or [SECRET]]
    return signed(signatures).is_by(keys, body)


def is_current(timestamp: str) -> bool:
    headers = {"webhook-id": ID, "webhook-timestamp": timestamp, "webhook-signature": SIGNATURE}
    try:
        StandardWebhooks().read(headers)
    except Unverified:
        return False
    return True


def test_the_specifications_known_answer_is_good() -> None:
    assert is_signed()
    assert sign(key_of(SECRET), f"{ID}.{TIMESTAMP}.".encode() + BODY) == SIGNATURE.encode()


@pytest.mark.parametrize(
    "signatures",
    [
        f"v1,AAAA {SIGNATURE}",
        f"{SIGNATURE} v1,AAAA",
        f"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw {SIGNATURE}",
        f"é ,, v1 {SIGNATURE}  ",
    ],
)
def test_one_good_signature_among_others_is_enough(signatures: str) -> None:
    assert is_signed(signatures)


@pytest.mark.parametrize(
    "signatures",
    ["v1,", "v1", " ", ",", SIGNATURE[3:], f"v1a{SIGNATURE[2:]}", f"v2{SIGNATURE[2:]}", SIGNATURE[:-1], "v1,é"],
)
def test_anything_else_is_no_signature(signatures: str) -> None:
    assert not is_signed(signatures)


def test_what_was_signed_is_the_id_the_time_and_every_byte_of_the_body() -> None:
    assert not is_signed(body=BODY + b" ")
    assert not is_signed(body=b"")
    assert not signed(SIGNATURE, id=ID + "x").is_by([key_of(SECRET)], BODY)
    assert not signed(SIGNATURE, timestamp="1614265331").is_by([key_of(SECRET)], BODY)


def test_all_signatures_are_compared_with_all_secrets_whatever_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def compare(expected: bytes, signature: bytes) -> bool:
        nonlocal compared
        compared += 1
        return expected == signature

    monkeypatch.setattr(verifying.hmac, "compare_digest", compare)
    assert is_signed(f"{SIGNATURE} v1,AAAA v1,BBBB", SECRET, OTHER_SECRET)
    assert compared == 6
    assert not signed(f"{SIGNATURE} v1,AAAA").is_by([], BODY)
    assert compared == 8, "an unknown source takes as long"


def test_a_time_is_whole_seconds_of_now_give_or_take_five_minutes() -> None:
    now = int(time.time())
    for seconds in (0, -298, 298, -302, 302):
        assert is_current(str(now + seconds)) == (abs(seconds) < 300)
    for wrong in (f"{now}.0", f" {now}", f"+{now}", f"-{now}", "nan", "x", "", "1_0", "1e9", "9" * 99):
        assert not is_current(wrong), wrong


def test_a_secret_that_the_source_has_chosen_is_read_and_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SECRET}\n"))
    out, err = run("createwebhooksecret", "parcels", "--from-stdin")
    assert out == ""
    assert SECRET not in err
    assert keys_of("parcels") == [key_of(SECRET)]


def test_a_key_has_24_to_64_bytes() -> None:
    for number in (24, 64):
        assert len(key_of("whsec_" + base64.b64encode(b"x" * number).decode())) == number
    for number in (23, 65):
        with pytest.raises(ValueError, match="24 to 64 bytes"):
            key_of("whsec_" + base64.b64encode(b"x" * number).decode())


@pytest.mark.parametrize("secret", ["", "x", "whsec_", "whsec_AAAA", SECRET[6:], SECRET + "é", "whsec_" + "A" * 100])
def test_what_is_no_secret_is_refused(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
    with pytest.raises(CommandError, match="24 to 64 bytes"):
        run("createwebhooksecret", "parcels", "--from-stdin")
    assert not WebhookSecret.objects.exists()


@pytest.mark.parametrize(
    "source",
    [
        "",
        " ",
        "A",
        "a b",
        "a:b",
        "api:shop",
        ".",
        "..",
        "_a",
        "é",
        "a\n",
        "x" * 101,
        "a/b",
        *sorted(webhooks.RESERVED_SOURCES),
    ],
)
def test_a_source_may_not_be_called_what_could_confuse(source: str) -> None:
    with pytest.raises(CommandError, match="lowercase letters"):
        run("createwebhooksecret", source)
    assert not WebhookSecret.objects.exists()


@pytest.mark.parametrize("source", ["a", "stripe", "stripe-eu_2.test", "0", "x" * 100])
def test_any_other_name_is_a_sources(source: str) -> None:
    assert len(keys_of(source)) == 0
    webhooks.create(source)
    assert len(keys_of(source)) == 1


def test_a_row_of_a_reserved_name_opens_no_door() -> None:
    WebhookSecret.objects.create(source="console", secret=SECRET)
    assert keys_of("console") == []


def test_a_source_has_a_secret_once_so_that_revoking_it_means_something() -> None:
    webhooks.create("parcels", SECRET)
    webhooks.create("others", SECRET)
    with pytest.raises(ValueError, match="this very secret"):
        webhooks.create("parcels", SECRET)
    webhooks.revoke(WebhookSecret.objects.get(source="parcels"))
    with pytest.raises(ValueError, match="this very secret"):
        webhooks.create("parcels", SECRET)
    assert keys_of("parcels") == []


def test_a_secret_is_made_and_revoked_without_standing_in_the_text_of_a_statement() -> None:
    with CaptureQueriesContext(connection) as queries:
        secret = webhooks.create("parcels")
        run("revokewebhooksecret", secret)
    assert len(key_of(secret)) == 32
    assert keys_of("parcels") == []
    assert not any(secret.removeprefix("whsec_") in query["sql"] for query in queries)
    assert DataKey.objects.count() == 1, "a process that lacks the key does not start"


# --- Sealed ---------------------------------------------------------------------------------------


def datakeys(action: str) -> str:
    return run("datakeys", action)[0]


def test_what_was_stored_in_clear_is_good_and_is_sealed_and_rotated_with_the_payloads(settings: Settings) -> None:
    settings.DATA_KEYS = ["the-old-one"]
    made, longest = webhooks.create("parcels"), "x" * 200
    WebhookSecret.objects.create(source="parcels", secret=SECRET)  # by the release before
    WebhookSecret.objects.create(source="stripe", secret=longest)
    good = {key_of(made), key_of(SECRET)}
    assert set(keys_of("parcels")) == good
    assert "2 in clear" in datakeys("check")
    assert "2 secrets are sealed" in datakeys("fill")
    settings.DATA_KEYS = ["the-new-one", "the-old-one"]
    assert "3 secrets are sealed" in datakeys("rotate")
    settings.DATA_KEYS = ["the-new-one"]
    assert "3 under the key 1 of DATA_KEYS" in datakeys("check")
    assert set(keys_of("parcels")) == good
    assert longest not in WebhookSecret.objects.get(source="stripe").secret


def test_one_that_does_not_open_leaves_the_other_good(settings: Settings) -> None:
    settings.DATA_KEYS = ["the-old-one"]
    webhooks.create("parcels")
    settings.DATA_KEYS = ["the-new-one"]
    assert keys_of("parcels") == [None]
    assert "?" in run("listwebhooksecrets")[0]
    made = webhooks.create("parcels")
    assert keys_of("parcels") == [None, key_of(made)]
    for action in ("check", "rotate"):
        with pytest.raises(CommandError, match="1 rows have a secret that does not open"):
            datakeys(action)
    assert DataKey.objects.count() == 2, "the key that it is under is not forgotten"


@pytest.mark.parametrize("moved", [{"source": "others"}, {"pk": 4711}])
def test_an_envelope_opens_in_its_row_and_for_its_source_only(moved: dict[str, Any]) -> None:
    webhooks.create("parcels")
    WebhookSecret.objects.update(id=moved.get("pk", F("id")), source=moved.get("source", "parcels"))
    assert keys_of(moved.get("source", "parcels")) == [None]
