"""Which tokens are believed: those that the provider signed, for us, that are not over."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from staff import oidc

ISSUER = "https://sso.example.com"
OURS, OTHERS = (generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
PEM = OURS.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def published(key: RSAPrivateKey) -> dict[str, Any]:
    return {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": "1", "use": "sig"}


@pytest.fixture(autouse=True)
def provider(settings: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the provider answers, by address."""
    settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID = ISSUER, "onramp"
    answers: dict[str, Any] = {
        f"{ISSUER}/.well-known/openid-configuration": {
            **{name: f"{ISSUER}/{name}" for name in ("authorization_endpoint", "token_endpoint", "userinfo_endpoint")},
            "issuer": ISSUER,
            "jwks_uri": f"{ISSUER}/keys",
        },
        f"{ISSUER}/keys": {"keys": [published(OURS)]},
    }
    monkeypatch.setattr(oidc, "_json", lambda url, **options: answers[url])
    for kept in (oidc._kept_document, oidc._keys):
        kept.cache_clear()
    return answers


def token(key: Any = OURS, algorithm: str = "RS256", kid: str = "1", **claims: Any) -> str:
    """Its times are given as seconds from now."""
    usual = {"iss": ISSUER, "aud": "onramp", "sub": "ada", "iat": 0, "exp": 300}
    made = {name: value for name, value in {**usual, **claims}.items() if value is not None}
    made |= {name: time.time() + made[name] for name in ("iat", "exp") if name in made}
    return jwt.encode(made, key, algorithm=algorithm, headers={"kid": kid})


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"aud": ["onramp", "another"], "azp": "onramp"},
        {"iat": 600},  # its clock is ahead
        {"exp": -30},
    ],
)
def test_a_token_of_the_provider_for_us_is_believed(claims: dict[str, Any]) -> None:
    assert oidc.claims_of(token(**claims))["sub"] == "ada"


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another"},
        {"aud": ["onramp", "another"], "azp": "another"},
        {"iss": "https://evil.example.com"},
        {"exp": -600},
        *({name: None} for name in ("aud", "iss", "exp", "sub", "iat")),
        *({"sub": sub} for sub in ("", 7, "x" * 192, "a\0da")),
        {"auth_time": "yesterday"},
        {"kid": "2"},
        {"key": OTHERS},
        {"key": "", "algorithm": "none"},
    ],
)
def test_no_other_token_is(claims: dict[str, Any]) -> None:
    with pytest.raises(oidc.NotBelieved):
        oidc.claims_of(token(**claims))


def test_a_token_signed_with_what_everybody_may_read_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt.algorithms, "is_pem_format", lambda key: False)  # the library refuses to make one
    with pytest.raises(oidc.NotBelieved):
        oidc.claims_of(token(PEM, "HS256"))


@pytest.mark.parametrize("sent", [None, "", "a.b.c", 7, "{}"])
def test_what_is_no_token_is_not_believed(sent: Any) -> None:
    with pytest.raises(oidc.NotBelieved):
        oidc.claims_of(sent)


def test_a_document_of_another_issuer_or_without_endpoints_is_not_believed(provider: dict[str, Any]) -> None:
    document = provider[f"{ISSUER}/.well-known/openid-configuration"]
    for broken in ({"issuer": "https://evil.example.com"}, {"token_endpoint": None}):
        provider[f"{ISSUER}/.well-known/openid-configuration"] = {**document, **broken}
        with pytest.raises(oidc.NotBelieved):
            oidc.document()


def test_what_is_told_of_another_user_is_not_believed(provider: dict[str, Any]) -> None:
    provider[f"{ISSUER}/userinfo_endpoint"] = {"sub": "eve", "groups": ["leads"], "preferred_username": "ada"}
    with pytest.raises(oidc.NotBelieved):
        oidc.of_user({"sub": "ada"}, "access")
    provider[f"{ISSUER}/userinfo_endpoint"]["sub"] = "ada"
    assert oidc.of_user({"sub": "ada", "groups": ["support"]}, "access")["groups"] == ["support"]
