import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.ingress import webhooks
from workflows.management.database import DatabaseCommand


class Command(DatabaseCommand):
    help = (
        "Make a secret for a source of webhooks (Standard Webhooks): it sends to /v1/signals/SOURCE. The secret "
        "is the last line printed. All secrets of a source are valid until they are revoked: to replace one, make "
        "another, give it to the source, and when it signs with that, revoke the old one (revokewebhooksecret)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "source",
            help="its name in the address: lowercase letters, digits and -_. (github, stripe-eu)",
        )
        parser.add_argument(
            "--from-stdin",
            action="store_true",
            help="take the secret that the source itself has chosen (whsec_...) from standard input, and print nothing",
        )

    def handle(self, *args: Any, source: str, from_stdin: bool, **options: Any) -> None:
        try:
            # From stdin, because the shell's history and the list of processes show arguments.
            secret = webhooks.create(source, sys.stdin.readline().strip() if from_stdin else None)
        except ValueError as error:
            raise CommandError(str(error)) from None
        # To stderr, so that SECRET=$(manage.py createwebhooksecret ...) contains only the secret.
        self.stderr.write(
            f"A secret of {source}, which sends to /v1/signals/{source}. It is good at once, beside the others of "
            f"{source}. To revoke it: manage.py revokewebhooksecret {webhooks.shown(secret)}",
            self.style.NOTICE,
        )
        if not from_stdin:
            self.stdout.write(secret)
