"""Sessions in the database, as Django's own, except for impossible keys (the setting SESSION_ENGINE)."""

from __future__ import annotations

from typing import Any

from django.contrib.sessions.backends import db


class SessionStore(db.SessionStore):
    def _validate_session_key(self, key: Any) -> bool:
        """Whether it can be a session's key. A cookie may contain a NUL, which PostgreSQL refuses."""
        return bool(super()._validate_session_key(key)) and key.isalnum()  # type: ignore[misc]
