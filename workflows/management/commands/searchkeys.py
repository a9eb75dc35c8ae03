from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.extension import installed
from workflows.management.arguments import HelpInLines
from workflows.management.database import DatabaseCommand
from workflows.management.slices import how_far, stoppable, told
from workflows.search import rows
from workflows.search.rows import Progress

HELP = """\
The search keys by which the console finds a workflow (an e-mail address, a phone number), and the
hashes of business keys, by which workers tell duplicates.

They are stored with each submission. These commands are for submissions from before a release with
search keys, or with another key of the setting SEARCH_KEYS:

  fill      give each workflow the search keys that it lacks, the newest first
  rotate    the same, and then remove those that were not made with the first of SEARCH_KEYS

Both go in slices beside the intake and the workers, and rest for as long as each slice took. You
may stop them (Ctrl-C) and run them again at any time: what is already there stays.

To change the key without a gap:

  1. SEARCH_KEYS=<new>,<old>      in the environment of every process; restart the intake, the
                                  console and the workers. From now on the new one writes, and
                                  both are searched.
  2. manage.py searchkeys rotate  with that same environment. If it says that a process still
                                  writes with another key, restart that one, and run it again.
  3. SEARCH_KEYS=<new>            and restart; or leave <old>, last, for as long as step 2 says: legal
                                  holds and charges may need it.

If SEARCH_KEYS was not set before, the old one is from-SECRET_KEY, spelled like that. A new
one: python -c "import secrets; print(secrets.token_urlsafe(32))"
"""

EXAMPLES = """\
examples:
  manage.py searchkeys fill                    after the first release with search keys
  manage.py searchkeys fill --below 4711       go on where it was stopped
  manage.py searchkeys rotate                  after a new key was put first in SEARCH_KEYS
"""


class Command(HelpInLines, DatabaseCommand):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="fill | rotate")
        what = "Give each workflow the search keys that it lacks, the newest first."
        fill = actions.add_parser("fill", help=what, description=what)
        below = "start with the workflows below this number, not with the newest"
        fill.add_argument("--below", type=int, metavar="NUMBER", help=below)
        what = "Make all search keys again with the first of SEARCH_KEYS, then remove the others."
        actions.add_parser("rotate", help=what, description=what)

    def handle(self, *args: Any, action: str, below: int | None = None, **options: Any) -> None:
        self._go_on = f"Go on later with: manage.py searchkeys {action}"
        progress = rows.begin(below)
        with stoppable(lambda: self._go_on):
            self._fill(progress, action)
            if action == "rotate":
                self._remove_old(progress)

    def _fill(self, progress: Progress, action: str) -> None:
        for _ in told(rows.fill(progress), self._how_far, self.stdout.write):
            if action == "fill":
                self._go_on = f"Go on later with: manage.py searchkeys fill --below {progress.below}"
        self.stdout.write(f"Each workflow has its search keys: {progress.written:,} were missing.")

    def _remove_old(self, progress: Progress) -> None:
        for made in filter(None, (each.hash_again() for each in installed())):
            self.stdout.write(made)
        for _ in told(rows.remove_old(progress), lambda so_far: f"{so_far.removed:,} removed", self.stdout.write):
            pass
        self.stdout.write(f"{progress.removed:,} search keys of other keys are removed.")
        if progress.of_other_types:
            self.stdout.write(
                f"{progress.of_other_types:,} stay: they are of workflows of types that WORKFLOWS does not name here. "
                "Run this with a setting that does, or leave the old key in SEARCH_KEYS."
            )
        for why in filter(None, (each.needs_old_keys() for each in installed())):
            self.stdout.write(why)
        if progress.of_charges:
            self.stdout.write(
                f"{progress.of_charges:,} hashes of business keys stay: what they are of was charged, its content was "
                "deleted, and without them the same could be charged again. Leave the older key in SEARCH_KEYS until "
                "this command counts none."
            )
        if progress.too_new:
            raise CommandError(
                f"{progress.too_new:,} were written with another key while this ran, and stay: a process has not been "
                "restarted since SEARCH_KEYS was changed. Restart it, and run this again."
            )

    def _how_far(self, progress: Progress) -> str:
        return f"{how_far(progress.below, progress.newest)}; {progress.written:,} search keys written"
