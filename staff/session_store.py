"""Sessions in the database, as Django's own, except for impossible keys (the setting SESSION_ENGINE)."""

from __future__ import annotations

from typing import Any

from django.contrib.sessions.backends import db
from django.db import transaction


class SessionStore(db.SessionStore):
    def _validate_session_key(self, key: Any) -> bool:
        """Whether it can be a session's key. A cookie may contain a NUL, which PostgreSQL refuses."""
        return bool(super()._validate_session_key(key)) and key.isalnum()  # type: ignore[misc]

    def cycle_key(self) -> None:
        """Change the key, in the list of sessions, too: by it, users are signed out who have changed their password."""
        from allauth.usersessions.models import UserSession  # needs the apps

        before = self.session_key
        with transaction.atomic():  # or `prune` finds the old key without a session
            super().cycle_key()
            UserSession.objects.filter(session_key=before).update(session_key=self.session_key)
