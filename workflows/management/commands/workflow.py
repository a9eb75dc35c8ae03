"""`manage.py workflow`: the console's operations from a shell, with the same permissions and records."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.management.base import CommandError

from workflows import operations
from workflows.errors import NotAllowed
from workflows.extension import installed
from workflows.management.arguments import HelpInLines
from workflows.management.database import DatabaseCommand
from workflows.management.workflow import subcommands
from workflows.management.workflow.subcommand import DONE, REFUSED, Subcommand
from workflows.operations import looking
from workflows.users import named

HELP = """\
What people do in the console, from a shell: the same operations, rights and records.

The actor is a user of the console. Their permissions decide, and the history has their name.
"""

EXIT_CODES = """\
It ends with
  0  it is done; of a bulk operation: each item is accepted, whatever becomes of it, or it goes on
  1  it is refused, and nothing has changed; the last line says why
  2  the arguments are wrong
  3  a bulk operation has ended, or rests, and not every item is accepted; a replay differs from the history
  130  Ctrl-C: a bulk operation that has started goes on
"""

EXAMPLES = f"""\
examples:
  manage.py workflow show 4711 --actor ada
  manage.py workflow retry 4711 --actor ada --reason "The bank is back." --dry-run
  manage.py workflow bulk retry --code unreachable --since 3h --actor ada --reason "Programs is back."
  manage.py workflow hold queue:default --for 30m --actor ada --reason "Programs moves its database."
  manage.py workflow VERB --help                      more of each

{EXIT_CODES}"""


class Command(DatabaseCommand, HelpInLines):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        parsers = {"": parser.add_subparsers(dest="verb", required=True, metavar="VERB")}
        groups = dict(group for each in installed() for group in each.subcommand_groups)
        for names, subcommand in subcommands().items():
            group, _, name = names.rpartition(" ")
            if group not in parsers:
                of_group = parsers[""].add_parser(group, help=groups[group], description=groups[group].capitalize())
                parsers[group] = of_group.add_subparsers(dest="verb_of_group", required=True, metavar="VERB")
            its = parsers[group].add_parser(
                name,
                help=subcommand.help,
                description=subcommand.help,
                epilog=_examples(subcommand),
                formatter_class=RawDescriptionHelpFormatter,
            )
            subcommand.add_arguments(its)
            its.add_argument("--actor", required=True, metavar="USER", help="the user of the console who does it")
            its.add_argument("--reason", default="", help="kept with it; no personal data")
            its.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")
            its.add_argument("--json", action="store_true", help="one JSON object, for scripts")
            its.set_defaults(subcommand=subcommand)

    def handle(self, *args: Any, subcommand: Subcommand, actor: str, dry_run: bool, **options: Any) -> None:
        user = named(actor).filter(is_active=True, is_staff=True).first()
        if user is None:
            raise CommandError(f"There is no active user {actor} of the console.")
        options |= {"dry_run": dry_run, "say": lambda line: self._say(line)}
        try:
            with operations.rehearsed() if dry_run else nullcontext():
                told = subcommand.run(user, options)
            if "workflow" in told:  # after a rehearsal, too, and before anything of it is shown
                looking.record_view(told["workflow"], actor=actor)
        except NotAllowed as refusal:
            raise CommandError(str(refusal), returncode=REFUSED) from None
        except PermissionDenied as denied:
            raise CommandError(f"{actor} lacks the right {denied}.", returncode=REFUSED) from None
        except KeyboardInterrupt:
            sys.exit(130)
        exit_code = told.pop("exit_code", DONE)
        if options["json"]:
            self.stdout.write(json.dumps(told))
        else:
            self.stdout.write("\n".join(_lines(told)))
        if dry_run and subcommand.changes:
            self._say("Nothing was changed: --dry-run.")
        if exit_code:
            sys.exit(exit_code)

    def _say(self, line: str) -> None:
        """Write to stderr: stdout has only what scripts read."""
        self.stderr.write(line, self.style.NOTICE)
        self.stderr.flush()


def _examples(subcommand: Subcommand) -> str:
    lines = [f"  manage.py workflow {each} --actor ada" for each in subcommand.examples]
    return "\n".join(["examples:", *lines, "", EXIT_CODES] if lines else [EXIT_CODES])


def _lines(told: dict[str, Any]) -> Iterator[str]:
    """A line for each value. A list has its name, and below it a line for each item."""
    for name, value in told.items():
        label = name.replace("_", " ")
        if isinstance(value, list) and value:
            yield f"{label}:"
            yield from (f"  {_in_a_line(each)}" for each in value)
        else:
            text = "-" if value in ("", None, []) else str(value)
            yield f"{label}: {text.replace(chr(10), ' ')}"


def _in_a_line(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return "  ".join(str(each).replace("\n", " ") for each in value.values() if each not in ("", None))
