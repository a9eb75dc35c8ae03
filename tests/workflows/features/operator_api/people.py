"""People of the console, keys of theirs, and programs that send these."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from tests.groups import make_groups
from workflows.ingress import api_keys

AT = "/v1/operator"


def person(name: str, *groups: str, **fields: Any) -> User:
    """Staff with an address of their own and an account of before today."""
    make_groups()
    known = {"email": f"{name}@clinic.example", "date_joined": timezone.now() - timedelta(days=2), "is_staff": True}
    user: User = User.objects.create_user(name, **{**known, **fields})
    user.groups.set([Group.objects.get_or_create(name=each)[0] for each in groups])
    return user


class Program:
    """A client of the operator's API with a key of this user's."""

    def __init__(self, user: User, name: str = "Chat", **options: Any) -> None:
        self.user = user
        self.key = api_keys.create_for(user, name, **{"per_second": 10_000.0, **options})
        self.client = Client(enforce_csrf_checks=True)

    def get(self, path: str, status: int = 200) -> Any:
        address = path if path.startswith("/") else f"{AT}/{path}"
        return self._answer(self.client.get(address, headers=self._headers), status)

    def post(self, path: str, body: dict[str, Any], status: int = 202, *, key: str = "") -> Any:
        headers = {**self._headers, "Idempotency-Key": key or str(uuid4())}
        sent = self.client.post(f"{AT}/{path}", json.dumps(body), "application/json", headers=headers)
        return self._answer(sent, status)

    def propose(self, verb: str, status: int = 202, *, key: str = "", version: str = "", **of: int) -> Any:
        """Propose it of the row as it is now, unless it is of another `version`."""
        (what, number), *_ = of.items()
        version = version or self.get(f"{what}s/{number}")["version"]
        return self.post("proposals", {"verb": verb, **of, "version": version, "reason": "It hangs."}, status, key=key)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def _answer(self, response: Any, status: int) -> Any:
        assert response.status_code == status, (response.status_code, response.content)
        assert response.headers["Cache-Control"] == "no-store"
        assert not response.cookies
        return response.json()
