"""API keys: the clients that may send, and revoking a key. `manage.py createapikey` makes one, and shows it once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from workflows import operations
from workflows.console.base import ConsoleAdmin, time_column
from workflows.console.verbs import Verb
from workflows.health.api_keys import SOON
from workflows.ingress import api_keys
from workflows.models import ApiKey
from workflows.telling import words

REVOKE = Verb(
    slug="revoke",
    label="Revoke",
    permission=operations.REVOKE,
    operation=operations.revoke,
    applies=lambda key: key.revoked_at is None,
    consequences=lambda key: [
        f"Requests of {key.name} with this key are refused, in {api_keys.MAX_AGE_SECONDS:.0f} seconds at the latest. "
        "Other keys of this client go on working.",
        "What was sent with it stays and is processed.",
        "This is for good: a revoked key cannot be made valid again.",
    ],
    done="The key is revoked.",
)


@admin.register(ApiKey)
class ApiKeyAdmin(ConsoleAdmin):
    list_display = ("client", "starts_with", "state", "may_do", "last_used", "created", "expires", "revoked")
    ordering = ("-id",)
    page_template = "admin/workflows/facts.html"
    identity = ("prefix", "created_at")
    verbs = (REVOKE,)
    created, revoked = time_column("Created", "created_at"), time_column("Revoked", "revoked_at")
    last_used, expires = time_column("Last used", "last_used_at"), time_column("Expires", "expires_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        return ApiKey.objects.select_related("person").defer("digest")

    def page(self, request: HttpRequest, row: ApiKey) -> dict[str, Any]:
        facts = [
            ("Starts with", self.starts_with(row)),
            ("May do", row.bounds),
            ("Created", words.clock(row.created_at)),
            ("Last used", f"{words.clock(row.last_used_at)}, or up to an hour later" if row.last_used_at else "Never"),
            ("Expires", words.clock(row.expires_at) if row.expires_at else "Never"),
            ("Revoked", words.clock(row.revoked_at) if row.revoked_at else ""),
        ]
        about = "The key itself is shown once, when manage.py createapikey makes it. Only its hash is kept."
        return {"badge": self.state(row), "name": row.name, "facts": facts, "about": about}

    @admin.display(description="Client")
    def client(self, key: ApiKey) -> str:
        return key.name

    @admin.display(description="Starts with")
    def starts_with(self, key: ApiKey) -> str:
        return f"{key.prefix}…"

    @admin.display(description="May do")
    def may_do(self, key: ApiKey) -> str:
        return key.bounds

    @admin.display(description="State")
    def state(self, key: ApiKey) -> SafeString:
        now = timezone.now()
        if key.revoked_at:
            return words.badge("failed", "Revoked")
        if key.expires_at and key.expires_at <= now:
            return words.badge("failed", "Expired")
        if key.expires_at and key.expires_at <= now + timedelta(days=SOON):
            return words.badge("waiting", "Expires soon")
        return words.badge("complete", "Valid")
