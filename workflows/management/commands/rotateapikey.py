from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError

from workflows import times
from workflows.ingress import api_keys
from workflows.management.arguments import duration, time_or_in
from workflows.management.database import DatabaseCommand


class Command(DatabaseCommand):
    help = (
        "Make a successor of an API key: the same client, with the same bounds. It is the last line printed, and is "
        "never shown again. Both are valid until the old one expires. A key that has leaked: revoke it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("key", help="its number or the start of it, as listapikeys shows them, or the whole key")
        parser.add_argument(
            "--keep",
            type=duration,
            default=api_keys.KEPT_BESIDE,
            metavar="TIME",
            help=f"for how long the old key stays valid: 12h or 2d ({api_keys.KEPT_BESIDE.days}d)",
        )
        parser.add_argument(
            "--expires", type=time_or_in, metavar="TIME", help="of the new key; without it, it lives as long as the old"
        )

    def handle(self, *args: Any, key: str, keep: timedelta, expires: datetime | None, **options: Any) -> None:
        try:
            old = api_keys.find_one(key)
            new = api_keys.rotate(old, keep=keep, expires_at=expires)
        except ValueError as error:
            raise CommandError(str(error)) from None
        old.refresh_from_db(fields=["expires_at"])
        assert old.expires_at
        self.stderr.write(
            f"A successor of {old}, which expires at {times.utc(old.expires_at)}. "
            "Keep it now: only its hash is stored.",
            self.style.NOTICE,
        )
        self.stdout.write(new)
