from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.ingress import api_keys, bounds
from workflows.management.arguments import HelpInLines, time_or_in
from workflows.management.database import DatabaseCommand


class Command(HelpInLines, DatabaseCommand):
    help = (
        "Make an API key for a client. The key is the last line printed, and is never shown again.\n"
        "Without options it submits, reads and signals workflows of any type."
    )
    examples = (
        "examples:\n"
        "  createapikey Website\n"
        "  createapikey Website --type refill --verb submit --verb read --expires 365d --per-second 20\n"
        "  createapikey Reports --tenant north --verb read-history"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the client; two keys with one name are the same client")
        parser.add_argument("--tenant", default="", help="of what is sent with it; it reaches no other tenant's")
        parser.add_argument("--type", action="append", default=[], dest="types", help="only these types; repeatable")
        parser.add_argument("--queue", action="append", default=[], dest="queues", help="only these queues; repeatable")
        parser.add_argument(
            "--verb",
            action="append",
            default=[],
            dest="verbs",
            choices=bounds.VERBS,
            help=f"only this; repeatable (without it: {', '.join(bounds.USUAL)})",
        )
        parser.add_argument(
            "--may",
            action="append",
            default=[],
            choices=bounds.BEYOND,
            help="this as well: cancel the workflows of its tenant (without a tenant: its own) that have charged "
            "nothing, or read their history; repeatable",
        )
        parser.add_argument("--expires", type=time_or_in, metavar="TIME", help="365d, or a time or date (UTC)")
        parser.add_argument(
            "--per-second",
            type=float,
            metavar="N",
            help="requests a second, in each process; more are answered 429, with the time to wait",
        )

    def handle(self, *args: Any, name: str, expires: Any, **options: Any) -> None:
        given = {each: options[each] for each in ("tenant", "types", "queues", "verbs", "may", "per_second")}
        try:
            key = api_keys.create(name, expires_at=expires, **given)
        except ValueError as error:
            raise CommandError(str(error)) from None
        # To stderr, so that KEY=$(manage.py createapikey ...) contains only the key.
        self.stderr.write(
            f"A key for {name}. Keep it now: only its hash is stored. "
            f"To revoke it: manage.py revokeapikey {key[: api_keys.PREFIX_LENGTH]}",
            self.style.NOTICE,
        )
        self.stdout.write(key)
