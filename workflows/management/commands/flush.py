"""`manage.py flush`: Django's command, which also empties a test's database. Elsewhere what is on record stays."""

from __future__ import annotations

from typing import Any

from django.core import mail
from django.core.management.commands import flush
from django.db import connections, transaction

GUARDED = "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'stays'"


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        using = options["database"]
        # Django's tests have an outbox (https://docs.djangoproject.com/en/stable/topics/testing/tools/#email-services).
        if not hasattr(mail, "outbox") or connections[using].vendor != "postgresql":
            super().handle(**options)
            return
        with transaction.atomic(using), connections[using].cursor() as cursor:
            cursor.execute(GUARDED)
            tables = [table for (table,) in cursor.fetchall()]
            for table in tables:
                cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER stays")
            super().handle(**options)
            for table in tables:
                cursor.execute(f"ALTER TABLE {table} ENABLE TRIGGER stays")
