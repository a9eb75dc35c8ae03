"""An envelope is the stored form of a secret value: `sealed:<key>:<nonce and ciphertext>`.

AES-256-GCM, with the row's idempotency key and the field's path as associated data: an envelope that is moved to
another row or field does not open. The nonce is a keyed digest (BLAKE2) of these and the value, as in AES-GCM-SIV (RFC
8452, which the library has only on newer OpenSSL). So it differs for two values, and shows whether a value that is sent
again is the same. An emptied envelope is cut after its nonce, and still shows that.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode
from binascii import b2a_base64
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.conf import settings

if TYPE_CHECKING or find_spec("cryptography"):
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
else:
    from workflows.sealing.unavailable import AESGCM, InvalidTag

PREFIX = "sealed:"
# An entry of the settings DATA_KEYS and SEARCH_KEYS for a key that is derived from SECRET_KEY: the default.
FROM_SECRET_KEY = "from-SECRET_KEY"  # noqa: S105 (a word, and no secret)

# What a step reads in place of a value that is no longer stored.
EMPTIED = "(emptied)"

_NONCE_BYTES = 12
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_STRING = b"="  # no JSON begins with it
# Characters of an emptied envelope: the prefix, the key's id, a colon, and the nonce in base64.
EMPTIED_LENGTH = len(PREFIX) + 8 + 1 + _NONCE_BYTES * 4 // 3


class Unreadable(Exception):
    """An envelope does not open. The message gives the reason, and nothing of the content."""


class KeyLacking(Unreadable):
    """The envelope is under a key that is not in DATA_KEYS of this process."""

    def __init__(self, key_id: str) -> None:
        super().__init__(f"It is sealed under the key {key_id[:8]}, which DATA_KEYS lacks here.")
        self.key_id = key_id


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key of the setting DATA_KEYS. Each envelope contains its `id`, which only identifies the key."""

    id: str
    cipher: AESGCM
    digest_key: bytes

    @classmethod
    def of(cls, secret: bytes) -> DataKey:
        def derived(use: bytes) -> bytes:
            return hmac.digest(secret, b"workflows.sealing " + use, "sha256")

        return cls(derived(b"id")[:4].hex(), AESGCM(derived(b"cipher")), derived(b"digest"))

    def nonce(self, text: bytes, about: bytes) -> bytes:
        return blake2b(b"%d:%b%b" % (len(about), about, text), key=self.digest_key, digest_size=_NONCE_BYTES).digest()


def keys() -> list[DataKey]:
    """The keys of the setting DATA_KEYS: the first one seals, all open."""
    return _keys(tuple(settings.DATA_KEYS) or (FROM_SECRET_KEY,), settings.SECRET_KEY)


@lru_cache
def _keys(texts: tuple[str, ...], secret_key: str) -> list[DataKey]:
    return [DataKey.of((secret_key if text == FROM_SECRET_KEY else text).encode()) for text in texts]


def is_envelope(stored: Any) -> bool:
    return isinstance(stored, str) and stored.startswith(PREFIX)


def is_emptied(stored: Any) -> bool:
    return is_envelope(stored) and len(stored) <= EMPTIED_LENGTH


def key_id_of(envelope: str) -> str:
    return envelope.removeprefix(PREFIX).partition(":")[0]


def seal(value: Any, *, row: UUID, field: str, key: DataKey | None = None) -> str:
    """The envelope of a JSON value, under the first data key. Equal values of one field have equal envelopes."""
    key, about, text = key or keys()[0], _about(row, field), _text(value)
    nonce = key.nonce(text, about)
    encoded = b2a_base64(nonce + key.cipher.encrypt(nonce, text, about), newline=False)
    return f"{PREFIX}{key.id}:{encoded.translate(_URL_SAFE).decode()}"


def unseal(stored: Any, *, row: UUID, field: str) -> Any:
    """The value in an envelope. A value from before the field was secret is returned as it is. Raises Unreadable."""
    if not is_envelope(stored):
        return stored
    if is_emptied(stored):
        return EMPTIED
    key, sealed = _key_and_bytes(stored)
    try:
        text = key.cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _about(row, field))
    except (InvalidTag, ValueError):  # ValueError: too short
        raise Unreadable(f"What is stored of {field} was changed, or is another row's.") from None
    return text[1:].decode() if text[:1] == _STRING else json.loads(text)


def is_same(stored: Any, value: Any, *, row: UUID, field: str) -> bool:
    """Whether `stored` is the envelope of this value, or the value itself. Raises Unreadable.

    True for an emptied envelope whose key is gone: the rest of the payload then decides.
    """
    text = _text(value)
    if not is_envelope(stored):
        return hmac.compare_digest(_text(stored), text)
    if is_emptied(stored) and key_id_of(stored) not in {key.id for key in keys()}:
        return True
    key, sealed = _key_and_bytes(stored)
    return hmac.compare_digest(sealed[:_NONCE_BYTES], key.nonce(text, _about(row, field)))


def _key_and_bytes(envelope: str) -> tuple[DataKey, bytes]:
    key_id, encoded = key_id_of(envelope), envelope.rpartition(":")[2]
    key = next((key for key in keys() if key.id == key_id), None)
    if key is None:
        raise KeyLacking(key_id)
    try:
        return key, urlsafe_b64decode(encoded)
    except ValueError:
        raise Unreadable("What is stored is not an envelope.") from None


def _about(row: UUID, field: str) -> bytes:
    return row.bytes + field.encode()


def _text(value: Any) -> bytes:
    if isinstance(value, str):  # nearly all values, and faster
        return _STRING + value.encode()
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
