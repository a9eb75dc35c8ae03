"""Stands in for `cryptography` if the extra `sealing` is not installed: nothing is sealed or opened, and no secret is
stored in clear instead.
"""

from __future__ import annotations

from typing import NoReturn

from workflows.extras import ExtraMissing


class InvalidTag(Exception):
    """The same name as there; never raised."""


class AESGCM:
    def __init__(self, key: bytes) -> None:
        """Accepts the key, so that the key's id is known."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> NoReturn:
        raise ExtraMissing("cryptography")

    decrypt = encrypt
