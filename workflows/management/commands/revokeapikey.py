from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.ingress import api_keys
from workflows.management.database import DatabaseCommand


class Command(DatabaseCommand):
    help = f"Revoke an API key: every process refuses it within {api_keys.MAX_AGE_SECONDS:.0f} seconds."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("key", help="its number or the start of it, as listapikeys shows them, or the whole key")

    def handle(self, *args: Any, key: str, **options: Any) -> None:
        try:
            found = api_keys.find_one(key)
        except ValueError as error:
            raise CommandError(str(error)) from None
        if not api_keys.revoke(found):
            self.stdout.write(f"{found} had been revoked already.")
            return
        self.stdout.write(f"{found} is revoked. It may be taken for {api_keys.MAX_AGE_SECONDS:.0f} seconds more.")
