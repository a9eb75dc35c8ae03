from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.ingress import webhooks
from workflows.management.database import DatabaseCommand


class Command(DatabaseCommand):
    help = (
        "Revoke a secret that webhooks are signed with: deliveries that only this one has signed are refused at once "
        "(401). Earlier deliveries stay; other secrets of the source stay valid."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "secret", help="its number or the start of it, as listwebhooksecrets shows them, or the whole secret"
        )

    def handle(self, *args: Any, secret: str, **options: Any) -> None:
        found = list(webhooks.find(secret)[:2])
        if not found:
            raise CommandError("There is no such secret. See manage.py listwebhooksecrets.")
        if len(found) > 1:
            raise CommandError("More than one secret starts like that. Give its number: manage.py listwebhooksecrets.")
        if not webhooks.revoke(found[0]):
            self.stdout.write(f"The {found[0]} had been revoked already.")
            return
        self.stdout.write(f"The {found[0]} is revoked.")
