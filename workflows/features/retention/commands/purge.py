from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from workflows.features.retention import purge
from workflows.features.retention.purge import Progress
from workflows.features.retention.unsettled import words_of_reasons
from workflows.management.arguments import HelpInLines
from workflows.management.database import DatabaseCommand
from workflows.management.slices import stoppable, told

HELP = """\
Delete the content of workflows that finished long ago (what was sent, and the results), and much
later their rows, except for their keys.

Each definition says how long (retention=...). The workers do the same, a bit at a time; this command
shows what will go, or does it now. It works in slices beside the intake and the workers, oldest
first. You may stop it (Ctrl-C) and run it again.

Unsettled workflows stay, whatever their age: with unclear calls, with charges that stand after a
failure, or with steps still to be done. Rows go an hour after their keys were set aside: run the
command a second time then.
"""

EXAMPLES = """\
examples:
  manage.py purge --dry-run        how many would go, of which type, and why others stay
  manage.py purge
"""


class Command(HelpInLines, DatabaseCommand):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="change nothing: count what would go")
        parser.add_argument("--json", action="store_true", help="one object on stdout; progress goes to stderr")

    def handle(self, *args: Any, dry_run: bool, json: bool, **options: Any) -> None:
        progress, say = Progress(), self.stderr.write if json else self.stdout.write
        with stoppable(lambda: "What is emptied stays so. Run it again to go on."):
            for _ in told(purge.purge(progress, dry_run=dry_run), _how_far, say):
                pass
        self.stdout.write(_as_json(progress) if json else _in_words(progress, dry_run))


def _how_far(progress: Progress) -> str:
    number = (progress.deleted or progress.emptied).total()
    return f"{number:,} workflows so far, those that had finished by {progress.since:%Y-%m-%d %H:%M} UTC"


def _as_json(progress: Progress) -> str:
    return json.dumps({"emptied": progress.emptied, "deleted": progress.deleted, "stay": progress.stay})


def _in_words(progress: Progress, dry_run: bool) -> str:
    verb = "would be" if dry_run else "are"
    lines = [f"{number:,} of {name} {verb} emptied." for name, number in sorted(progress.emptied.items())]
    lines += [f"{number:,} of {name} {verb} deleted." for name, number in sorted(progress.deleted.items())]
    lines += [f"{number:,} stay: {words_of_reasons()[why]}." for why, number in sorted(progress.stay.items())]
    return "\n".join(lines) or "Nothing is old enough."
