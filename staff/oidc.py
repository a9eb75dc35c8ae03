"""Checks what the OpenID provider sends: its document, keys and tokens, within five seconds of a request."""

from __future__ import annotations

import re
from functools import lru_cache
from math import isfinite
from time import monotonic
from typing import Any

import jwt
import requests
from allauth.core import context
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from django.conf import settings

# Seconds for all calls to the provider during one request: a user waits for the page.
AT_MOST = 5.0
# Seconds of these to connect: a host that is down does not answer at all.
TO_CONNECT = 1.5
# Seconds for which a process keeps its document and keys. A token with a newer key is refused meanwhile.
KEPT = 30
# Seconds by which its clock may differ when a token's end is checked.
LEEWAY = 60
# Only public keys sign: with HS256 everybody who has the client's secret could.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
# What allauth's column takes: PostgreSQL refuses a NUL.
SUB = r"[^\0]{1,191}"

_NEEDED = ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")


class NotBelieved(OAuth2Error):  # type: ignore[misc]
    """The provider's data is not accepted. The message says why, for the log, without any part of a token."""


class Session(requests.Session):
    """Ends with the request's five seconds. Follows no redirect, because a request may contain the client's secret."""

    def request(self, method: str, url: str, *args: Any, **kwargs: Any) -> requests.Response:  # type: ignore[override]
        ends = context.request.__dict__.setdefault("oidc_ends", monotonic() + AT_MOST)
        left = ends - monotonic() - TO_CONNECT
        if left <= 0:
            raise requests.Timeout("The provider has had its five seconds.")
        kwargs |= {"timeout": (TO_CONNECT, left), "allow_redirects": False}
        return super().request(method, url, *args, **kwargs)


def issuer() -> str:
    """OIDC_ISSUER without a slash at its end, as accounts are stored: a slash more or less is the same provider."""
    return str(settings.OIDC_ISSUER).rstrip("/")


def document() -> dict[str, Any]:
    """Fetch the provider's document, which shows that it is up. Raises OAuth2Error or RequestException."""
    found = _json(f"{issuer()}/.well-known/openid-configuration")
    if missing := [name for name in _NEEDED if not isinstance(found.get(name), str)]:
        raise NotBelieved(f"The provider's document lacks {', '.join(missing)}.")
    if found["issuer"].rstrip("/") != issuer():
        raise NotBelieved("The provider's document is of another issuer than OIDC_ISSUER.")
    return found


def kept_document() -> dict[str, Any]:
    return _kept_document(issuer(), int(monotonic() // KEPT))


@lru_cache(maxsize=1)
def _kept_document(of: str, at: int) -> dict[str, Any]:
    return document()


@lru_cache(maxsize=1)
def _keys(url: str, at: int) -> jwt.PyJWKSet:
    try:
        return jwt.PyJWKSet.from_dict(_json(url))
    except jwt.PyJWTError:
        raise NotBelieved("The provider publishes no keys that could be used.") from None


def claims_of(token: Any, *, needs: tuple[str, ...] = ("exp", "sub")) -> dict[str, Any]:
    """The claims of a valid token that the provider has signed for us. Raises as `document`."""
    found = kept_document()
    try:
        header = jwt.get_unverified_header(token)
        keys = _keys(found["jwks_uri"], int(monotonic() // KEPT)).keys
        key = next((each for each in keys if each.key_id == header.get("kid")), None)
        if key is None or header["alg"] not in ALGORITHMS:
            raise NotBelieved("The token is not signed with a key that the provider publishes.")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[header["alg"]],
            audience=settings.OIDC_CLIENT_ID,
            issuer=found["issuer"],
            leeway=LEEWAY,
            # When it was made does not matter: it is part of an answer to us, or protected from being sent again.
            options={"require": ["iss", "aud", "iat", *needs], "verify_iat": False, "verify_sub": False},
        )
    except jwt.ExpiredSignatureError:
        raise NotBelieved("The token is over: compare the provider's clock with ours.") from None
    except jwt.PyJWTError as wrong:
        raise NotBelieved(f"The token is not for us: {type(wrong).__name__}.") from None
    if claims.get("azp", settings.OIDC_CLIENT_ID) != settings.OIDC_CLIENT_ID:
        raise NotBelieved("The token was made for another client.")
    if "sub" in claims and not (isinstance(claims["sub"], str) and re.fullmatch(SUB, claims["sub"])):
        raise NotBelieved("The token names no user.")
    if not all(_is_time(claims[name]) for name in ("iat", "auth_time") if claims.get(name) is not None):
        raise NotBelieved("The token's times are no numbers.")
    return claims


def _is_time(claim: Any) -> bool:
    return isinstance(claim, int | float) and isfinite(claim)


def of_user(claims: dict[str, Any], access_token: str) -> dict[str, Any]:
    """The claims, with those that only the provider's user endpoint has."""
    url = kept_document().get("userinfo_endpoint")
    if not url or {"groups", "preferred_username"} <= claims.keys():
        return claims
    told = _json(url, headers={"Authorization": f"Bearer {access_token}"})
    if told.get("sub") != claims["sub"]:
        raise NotBelieved("The provider tells of another user than the token's.")
    return {**told, **claims}


def _json(url: str, **options: Any) -> dict[str, Any]:
    with Session() as session:
        answer = session.get(url, **options)
    if answer.status_code != requests.codes.ok or not isinstance(found := answer.json(), dict):
        raise NotBelieved(f"The provider answered {answer.status_code}.")
    return found
