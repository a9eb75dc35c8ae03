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
        found = list(api_keys.find(key)[:2])
        if not found:
            raise CommandError("There is no such key. See manage.py listapikeys.")
        if len(found) > 1:
            raise CommandError("More than one key starts like that. Give its number: see manage.py listapikeys.")
        if not api_keys.revoke(found[0]):
            self.stdout.write(f"{found[0]} had been revoked already.")
            return
        self.stdout.write(f"{found[0]} is revoked. It may be taken for {api_keys.MAX_AGE_SECONDS:.0f} seconds more.")
