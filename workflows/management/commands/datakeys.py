from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from workflows.management.arguments import HelpInLines
from workflows.management.database import DatabaseCommand
from workflows.management.slices import how_far, stoppable, told
from workflows.sealing import key_register, rows
from workflows.sealing.envelopes import keys
from workflows.sealing.rows import Progress

HELP = """\
The keys that secret fields of payloads (passwords, session and card tokens), secrets of webhooks, and what is not
delivered yet (messages, events of the outbox) are sealed with.

  check     open each secret, and count under which key it is; ends with 1 if one does not open
  fill      seal what is in clear: from before a release that names the field secret, or seals it
  rotate    seal everything under the first of DATA_KEYS; then the others may go

All go in slices beside the intake and the workers, and rest for as long as each slice took. You may stop them (Ctrl-C)
and run them again at any time.

To change the key without a gap:

  1. DATA_KEYS=<old>,<new>        in the environment of every process; restart the intake, the
                                  console and the workers. Now all of them can open the new one.
  2. DATA_KEYS=<new>,<old>        and restart. The new one seals from now on.
  3. manage.py datakeys rotate    with that same environment.
  4. DATA_KEYS=<new>              and restart, when `datakeys check` finds nothing under the old one.

If DATA_KEYS was not set before, the old one is from-SECRET_KEY, spelled like that. A new one:
python -c "import secrets; print(secrets.token_urlsafe(32))"
"""

EXAMPLES = """\
examples:
  manage.py datakeys fill
  manage.py datakeys rotate        after a new key was put first in DATA_KEYS
  manage.py datakeys check         before an old key is thrown away
"""

# The most unreadable rows that are named.
MOST_NAMED = 20


class Command(HelpInLines, DatabaseCommand):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="check | fill | rotate")
        for action, what in (
            ("check", "Open each secret, and count under which key it is."),
            ("fill", "Seal the secrets that are stored in clear."),
            ("rotate", "Seal all secrets under the first of DATA_KEYS, and forget the other keys."),
        ):
            actions.add_parser(action, help=what, description=what)

    def handle(self, *args: Any, action: str, **options: Any) -> None:
        progress = rows.begin()
        if action != "check":
            key_register.register()  # before the first row, so that workers without the key leave it to others
        with stoppable(lambda: f"Run it again: manage.py datakeys {action}"):
            slices = rows.check(progress) if action == "check" else rows.reseal(progress)
            for _ in told(slices, lambda so_far: how_far(so_far.below, so_far.newest), self.stdout.write):
                pass
            if action == "rotate" and not (progress.busy or progress.unreadable):
                key_register.forget_others()
        if action == "check":
            for kept_as, number in sorted(progress.kept_as.items()):
                self.stdout.write(f"{number:,} {self._words(kept_as)}")
        else:
            self.stdout.write(f"{progress.sealed:,} secrets are sealed; the others were already.")
        self._report(progress)

    def _words(self, kept_as: str) -> str:
        if kept_as in (rows.IN_CLEAR, rows.EMPTIED):
            return kept_as
        ids = [key.id for key in keys()]
        place = f"the key {ids.index(kept_as) + 1} of DATA_KEYS" if kept_as in ids else "a key that DATA_KEYS lacks"
        return f"under {place} ({kept_as})"

    def _report(self, progress: Progress) -> None:
        """Raise CommandError if something is left to do."""
        if progress.busy:
            raise CommandError(f"{len(progress.busy):,} workflows are held by workers. Run it again.")
        if progress.unreadable:
            for row, why in list(progress.unreadable.items())[:MOST_NAMED]:
                self.stdout.write(f"{row}: {why}")
            raise CommandError(f"{len(progress.unreadable):,} rows have a secret that does not open.")
