"""`manage.py workflow`: what people do in the console, from a shell: the same operations, rights and records."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError

from workflows.errors import NotAllowed
from workflows.management.database import DatabaseCommand
from workflows.management.workflow import SUBCOMMANDS


class Command(DatabaseCommand):
    help = "What people do in the console, from a shell: the same operations, rights and records."

    def add_arguments(self, parser: ArgumentParser) -> None:
        subcommands = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        for name, subcommand in SUBCOMMANDS.items():
            its = subcommands.add_parser(name, help=subcommand.help, description=subcommand.help)
            subcommand.add_arguments(its)
            its.add_argument("--actor", required=True, metavar="USER", help="the user of the console who does it")
            its.add_argument("--reason", default="", help="kept with it; no patient data")
            its.add_argument("--dry-run", action="store_true", help="say how it stands, and change nothing")
            its.add_argument("--json", action="store_true", help="one JSON object, for scripts")

    def handle(self, *args: Any, verb: str, actor: str, dry_run: bool, **options: Any) -> None:
        user = User.objects.filter(username=actor, is_active=True).first()
        if user is None:
            raise CommandError(f"There is no active user {actor}.")
        subcommand = SUBCOMMANDS[verb]
        try:
            told = (subcommand.foretell if dry_run else subcommand.run)(user, options)
        except NotAllowed as refusal:
            raise CommandError(str(refusal)) from None
        except PermissionDenied as denied:
            raise CommandError(f"{actor} lacks the right {denied}.") from None
        if options["json"]:
            self.stdout.write(json.dumps(told))
            return
        for name, value in told.items():
            self.stdout.write(f"{name.replace('_', ' ')}: {'-' if value in ('', None) else value}")
