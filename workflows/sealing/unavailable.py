"""In place of `cryptography`, where the extra `sealing` is not installed: nothing is sealed or opened, and no secret is
ever stored in clear instead.
"""

from __future__ import annotations

from typing import NoReturn

from workflows.extras import ExtraMissing


class InvalidTag(Exception):
    """As there; never raised."""


class AESGCM:
    def __init__(self, key: bytes) -> None:
        """A key is known by its id all the same."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> NoReturn:
        raise ExtraMissing("cryptography")

    decrypt = encrypt
