from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.ingress import api_keys
from workflows.management.database import DatabaseCommand


class Command(DatabaseCommand):
    help = "Make an API key for a client. The key is the last line printed, and is never shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the client; two keys with one name are the same client")
        parser.add_argument("--tenant", default="", help="of what is sent with it: tenants take turns when much is due")

        parser.add_argument(
            "--may",
            action="append",
            default=[],
            choices=api_keys.RIGHTS,
            help="beside sending: cancel the workflows of its tenant (without a tenant: its own) that have charged "
            "nothing, or read their history; may be given twice",
        )

    def handle(self, *args: Any, name: str, tenant: str, may: list[str], **options: Any) -> None:
        try:
            key = api_keys.create(name, tenant=tenant, may=may)
        except ValueError as error:
            raise CommandError(str(error)) from None
        # To stderr, so that KEY=$(manage.py createapikey ...) contains only the key.
        self.stderr.write(
            f"A key for {name}. Keep it now: only its hash is stored. "
            f"To revoke it: manage.py revokeapikey {key[: api_keys.PREFIX_LENGTH]}",
            self.style.NOTICE,
        )
        self.stdout.write(key)
