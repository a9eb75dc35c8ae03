"""Whether an event is from its source, by what each vendor documents; Standard Webhooks is in test_webhooks.py."""

import hashlib
import hmac
from unittest.mock import patch

import pytest

from workflows.ingress import verifying
from workflows.ingress.verifying import Bearer, Hmac, Stripe, Unverified, Verifier

NOW = 1_700_000_000
SECRET = "whsec_test_secret_of_stripe"
BODY = b'{"id": "evt_1"}'

# https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries#testing-the-webhook-payload-validation
GITHUB = Hmac(header="X-Hub-Signature-256", prefix="sha256=")
GITHUB_SECRET, GITHUB_BODY = "It's a Secret to Everybody", b"Hello, World!"
GITHUB_SIGNATURE = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"

# https://api.slack.com/authentication/verifying-requests-from-slack#making__validating-a-request
SLACK = Hmac(header="X-Slack-Signature", prefix="v0=", timestamp="X-Slack-Request-Timestamp", before="v0:{timestamp}:")
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "time", lambda: float(NOW))


def is_by(verifier: Verifier, headers: dict[str, str], body: bytes, *secrets: str) -> bool:
    return verifier.read(headers).is_by([verifier.key_of(secret) for secret in secrets], body)


def by_stripe(secret: str = SECRET, *, at: int = NOW, body: bytes = BODY) -> str:
    """As https://docs.stripe.com/webhooks#verify-manually says, step by step."""
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


def test_githubs_documented_example_is_good_and_another_body_or_secret_is_not() -> None:
    headers = {"x-hub-signature-256": GITHUB_SIGNATURE}
    assert is_by(GITHUB, headers, GITHUB_BODY, GITHUB_SECRET)
    assert is_by(GITHUB, headers, GITHUB_BODY, "x" * 16, GITHUB_SECRET)
    assert not is_by(GITHUB, headers, GITHUB_BODY + b"!", GITHUB_SECRET)
    assert not is_by(GITHUB, headers, GITHUB_BODY, GITHUB_SECRET + "!")
    assert not is_by(GITHUB, headers, GITHUB_BODY)


def test_slacks_documented_example_is_good_in_its_five_minutes() -> None:
    headers = {
        "x-slack-request-timestamp": "1531420618",
        "x-slack-signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    with patch.object(verifying, "time", lambda: 1531420618.0 + 299):
        assert is_by(SLACK, headers, SLACK_BODY, "8f742231b10e8888abcd99yyyzzz85a5")
        assert not is_by(SLACK, headers, SLACK_BODY[1:], "8f742231b10e8888abcd99yyyzzz85a5")
    with pytest.raises(Unverified, match="within 300"):
        SLACK.read(headers)


@pytest.mark.parametrize("fields", [{"timestamp": "X-Time"}, {"before": "{timestamp}."}])
def test_a_timestamp_that_is_not_signed_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="timestamp is signed"):
        Hmac(header="X-Sum", **fields)  # type: ignore[arg-type]


def test_an_hmac_may_be_in_base64_and_of_another_algorithm() -> None:
    verifier = Hmac(header="X-Sum", encoding="base64", algorithm="sha512")
    expected = verifying._hmac("sha512", "base64")(b"k" * 16, BODY).decode()
    assert len(expected) == 88
    assert is_by(verifier, {"x-sum": expected}, BODY, "k" * 16)


@pytest.mark.parametrize("text", ["", "sha256=", GITHUB_SIGNATURE[7:], f"sha1={GITHUB_SIGNATURE[7:]}"])
def test_an_hmac_without_its_prefix_is_missing(text: str) -> None:
    with pytest.raises(Unverified, match="X-Hub-Signature-256"):
        GITHUB.read({"x-hub-signature-256": text})


@pytest.mark.parametrize(
    "header",
    [
        "t={at},v1={good}",
        "t={at},v1={other},v1={good},v0=abc",  # while a secret is replaced
        "v0=a, v1={good}, t={at}",
    ],
)
def test_a_signature_of_stripes_is_good_beside_others(header: str) -> None:
    text = header.format(at=NOW, good=by_stripe(), other=by_stripe("another secret of 16"))
    assert is_by(Stripe(), {"stripe-signature": text}, BODY, "another secret that", SECRET)
    assert not is_by(Stripe(), {"stripe-signature": text}, BODY + b" ", SECRET)
    assert not is_by(Stripe(), {"stripe-signature": text.replace(str(NOW), str(NOW - 1))}, BODY, SECRET)


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "webhook_signature_missing"),
        ("t={at}", "webhook_signature_missing"),
        ("t={at},v0={good}", "webhook_signature_missing"),  # a downgrade
        ("v1={good}", "webhook_signature_missing"),
        ("t={at},v1={good},t={late},v1={good}", "webhook_signature_missing"),  # two headers, joined
        ("t={late},v1={good}", "webhook_timestamp_stale"),
        ("t={early},v1={good}", "webhook_timestamp_stale"),
        ("t=x,v1={good}", "webhook_timestamp_stale"),
    ],
)
def test_a_signature_of_stripes_has_one_time_and_that_is_now(header: str, code: str) -> None:
    text = header.format(at=NOW, late=NOW - 301, early=NOW + 301, good=by_stripe())
    with pytest.raises(Unverified) as refused:
        Stripe().read({"stripe-signature": text})
    assert refused.value.code == code


def test_a_bearer_is_the_secret_itself() -> None:
    for scheme in ("Bearer", "bearer"):
        assert is_by(Bearer(), {"authorization": f"{scheme} {SECRET}"}, BODY, "y" * 16, SECRET)
    for wrong in (SECRET[:-1], SECRET + "x", "é"):
        assert not is_by(Bearer(), {"authorization": f"Bearer {wrong}"}, BODY, SECRET)
    assert not is_by(Bearer(), {"authorization": f"Bearer {SECRET}"}, BODY)
    for missing in ("", "Bearer", "Bearer  ", f"Basic {SECRET}"):
        with pytest.raises(Unverified):
            Bearer().read({"authorization": missing})


@pytest.mark.parametrize("secret", ["", "x" * 15, "x" * 201, "é" * 20, "x" * 16 + "\n"])
def test_a_text_that_is_no_secret_is_refused(secret: str) -> None:
    for verifier in (Stripe(), GITHUB, Bearer()):
        with pytest.raises(ValueError, match="16 to 200"):
            verifier.key_of(secret)
        assert [len(verifier.key_of("x" * length)) for length in (16, 200)] == [16, 200]


def test_a_flood_of_signatures_is_not_compared_and_what_covers_a_body_only_says_so() -> None:
    assert [each.covers_headers for each in (Bearer(), Stripe(), GITHUB)] == [True, False, False]
    assert len(Stripe().read({"stripe-signature": f"t={NOW}," + "v1=a," * 1000}).offered) == 16
