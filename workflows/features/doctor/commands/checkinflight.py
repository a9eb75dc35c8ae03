"""`manage.py checkinflight`: what this checkout's definitions would do to workflows under way, before a deploy."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from time import monotonic
from typing import Any

from workflows.features.doctor.in_flight import Found, Kind, examine
from workflows.management.arguments import HelpInLines
from workflows.management.database import DatabaseCommand

HELP = """\
What the definitions of this checkout would do to all workflows that are under way. Run it before its workers start.

It reads each of them, a batch at a time, holds no lock, calls nothing and changes nothing. What it finds is by type,
with the number of workflows and one of them as an example; no value of a payload is told.

It cannot see the names of waits, which stand in the code of steps: `manage.py workflow replay` meets them.

It ends with 0 when all can go on, and with 1 when something would break.
"""

EXAMPLES = """\
examples:
  manage.py checkinflight                     in the checkout that is to be deployed, after its migrations
  manage.py checkinflight --json > found.json
"""

# The words for each kind, and what to do.
WORDS = {
    Kind.UNKNOWN_TYPE: (
        "No definition has this type",
        "They wait for a release that does: name the definition in WORKFLOWS until they have ended.",
    ),
    Kind.UNDECLARED_STEP: (
        "A call on record is of a step that is not in the list",
        "They make no new call, and a person is asked: say formerly=... or retired=... .",
    ),
    Kind.RESULT_UNREADABLE: (
        "The context refuses the result of a call that was made",
        "They fail, and are reversed: let the context's field take what is on record.",
    ),
    Kind.INPUT_REFUSED: ("The input class refuses what was sent", "New ones of this kind are refused; these may fail."),
    Kind.CONTEXT_UNREADABLE: (
        "A deferred step cannot read the recorded context",
        "It is tried ten times in eight hours, and given up: let the context's field take what is on record.",
    ),
    Kind.STEP_GONE: (
        "A deferred step is not in the list",
        "It is given up: keep it, or give its new entry formerly=... .",
    ),
}

SAY_EVERY = 2.0


class Command(DatabaseCommand, HelpInLines):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", dest="in_json", help="one JSON object, for scripts")

    def handle(self, *args: Any, in_json: bool, **options: Any) -> None:
        said_at = monotonic()

        def progress(number: int) -> None:
            nonlocal said_at
            if monotonic() > said_at + SAY_EVERY:
                said_at = monotonic()
                self.stderr.write(f"{number:,} looked at.")

        number, broken, found = examine(progress)
        if in_json:
            self.stdout.write(
                json.dumps({"looked_at": number, "would_break": broken, "found": [asdict(each) for each in found]})
            )
        else:
            for each in found:
                self.stdout.write(self._sentences(each))
        self.stderr.write(
            f"{number:,} under way; {broken or 'nothing'} would break." if number else "None is under way."
        )
        if found:
            sys.exit(1)

    def _sentences(self, found: Found) -> str:
        what, cure = WORDS[found.kind]
        of = f": {found.what}" if found.what else ""
        lines = [
            self.style.WARNING(f"{what}{of}"),
            f"  {found.number:,} of {found.workflow_type}, workflow {found.example} for example",
            f"  {cure}",
        ]
        return "\n".join(lines)
