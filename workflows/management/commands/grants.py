from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand

from workflows.management import roles

ROLES = {
    "migrator": "owns the tables: `migrate`, and nothing else",
    "intake": "`config.intake`: stores submissions, and reads no payload, context, result or audit",
    "worker": "`runworker`, `relayoutbox`, `consumekafka`, `consumesqs`, `purge`: no passwords and sessions of staff",
    "console": "`config.wsgi`, and the commands for people",
    "reader": f"people and programs that count: the views of the schema {roles.SCHEMA}, without personal data",
}


class Command(BaseCommand):
    help = """Print the SQL that gives each process a database role of its own, with no right that it does not need.

The SQL is one transaction. It makes the roles that are missing, takes away what an earlier release gave them, and may
be run again: run it after each `migrate`. It changes nothing for other roles, and no process while it runs.

  manage.py grants | sudo -u postgres psql --set ON_ERROR_STOP=1 onramp

Then let the roles sign in (ALTER ROLE onramp_intake LOGIN PASSWORD '...'), and give each process its role in its
DATABASE_URL. If a role owns the tables already, name it: manage.py grants --migrator onramp
"""
    requires_system_checks = ()

    def create_parser(self, *args: Any, **options: Any) -> Any:
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **options)

    def add_arguments(self, parser: ArgumentParser) -> None:
        for role, purpose in ROLES.items():
            name = getattr(roles.Names(), role)
            parser.add_argument(
                f"--{role}", type=_name, default=name, metavar="ROLE", help=f"{purpose} (default: {name})"
            )
        parser.add_argument("--schema", type=_name, default="public", help="where the tables are (default: public)")

    def handle(self, *args: Any, schema: str, **options: Any) -> None:
        names = roles.Names(**{role: options[role] for role in ROLES})
        for statement in roles.sql(names, schema):
            self.stdout.write(f"{statement};")
        if others := roles.others():
            self.stderr.write(
                f"These tables are not Onramp's, and no role has got rights in them: {', '.join(others)}. "
                f"What your steps need, for example: GRANT SELECT, INSERT, UPDATE ON {others[0]} TO {names.worker};"
            )


def _name(text: str) -> str:
    # Other names would have to be quoted, here and by everybody who types them.
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", text):
        raise ArgumentTypeError(f"{text!r} is not a plain name: lower-case letters, digits and underscores")
    return text
