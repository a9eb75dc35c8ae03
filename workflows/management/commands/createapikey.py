from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.ingress import api_keys, bounds
from workflows.management.arguments import HelpInLines, time_or_in
from workflows.management.database import DatabaseCommand
from workflows.users import named


class Command(HelpInLines, DatabaseCommand):
    help = (
        "Make an API key for a client. The key is the last line printed, and is never shown again.\n"
        "Without options it submits, reads and signals workflows of any type. With --person it is for the operator's\n"
        "API alone: it sees what that user of the console may see, and proposes what another user then decides."
    )
    examples = (
        "examples:\n"
        "  createapikey Website\n"
        "  createapikey Website --type refill --verb submit --verb read --expires 365d --per-second 20\n"
        "  createapikey Reports --tenant north --verb read-history\n"
        "  createapikey Chat --person anna --verb look --expires 30d"
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
            choices=(*bounds.VERBS, *bounds.OPERATOR),
            help=f"only this; repeatable (without it: {', '.join(bounds.USUAL)}; with --person: "
            f"{', '.join(bounds.OPERATOR)})",
        )
        parser.add_argument(
            "--person",
            metavar="USER",
            help="the user of the console for whom it acts in the operator's API, and nothing else; it expires in "
            f"{api_keys.PERSONS_KEY.days} days unless --expires is given",
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

    def handle(self, *args: Any, name: str, expires: Any, person: str | None, **options: Any) -> None:
        given = {each: options[each] for each in ("tenant", "types", "queues", "verbs", "may", "per_second")}
        try:
            if person is None:
                key = api_keys.create(name, expires_at=expires, **given)
            else:
                key = _key_of(person, name, expires, given)
        except ValueError as error:
            raise CommandError(str(error)) from None
        # To stderr, so that KEY=$(manage.py createapikey ...) contains only the key.
        self.stderr.write(
            f"A key for {name}. Keep it now: only its hash is stored. "
            f"To revoke it: manage.py revokeapikey {key[: api_keys.PREFIX_LENGTH]}",
            self.style.NOTICE,
        )
        self.stdout.write(key)


def _key_of(person: str, name: str, expires: Any, given: dict[str, Any]) -> str:
    if (user := named(person).first()) is None:
        raise CommandError(f"There is no user {person}.")
    if bound := next((each for each in ("tenant", "types", "queues", "may") if given[each]), None):
        option = bound.removesuffix("s")
        raise CommandError(f"--{option} does not go with --person: the key sees what the person may see.")
    return api_keys.create_for(user, name, verbs=given["verbs"], per_second=given["per_second"], expires_at=expires)
