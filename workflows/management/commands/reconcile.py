"""`manage.py reconcile`: where the ledger and the services differ, after a restore to a point in time."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from workflows.definition import titled_step
from workflows.doctor.comparison import Difference, Kind, compare
from workflows.management.arguments import HelpInLines
from workflows.models import Effect

HELP = """\
Where the ledger of calls and the services differ: for people, after a restore to a point in time.

The services went on when the database fell back. For each step that lists its calls, the command asks
the service what it has performed, and compares that with the ledger, in both directions; what a listing
does not have it looks up, one call at a time. It changes nothing, here or there: you decide.

Stop the workers first, or calls that they have just made are listed. Start them when you know what to
do: they make a call that the ledger has lost again, under the same key, and a service that remembers
the key answers what it answered then. A service that has forgotten it performs the call a second time.

It ends with 0 when nothing differs, and with 1 when something does, or could not be compared.
"""

EXAMPLES = """\
examples:
  manage.py reconcile --since 2026-03-02T09:40Z       the time that the database was restored to, or a little before
  manage.py reconcile --since 2026-03-02 --json > differences.jsonl
  manage.py reconcile                                 everything: as many look-ups as there are charges
"""

# What each means, and what to do.
WORDS = {
    Kind.NO_SUBMISSION: (
        "The database has no such submission",
        "Have its client send it again, under its Idempotency-Key: the service then answers what it answered before. "
        "Else reverse the call at the service.",
    ),
    Kind.NOT_ON_LEDGER: (
        "The ledger has no such call",
        "The next attempt makes it again, under the same key. Start the workers while the service remembers that.",
    ),
    Kind.OTHER_STATE: (
        "The ledger has the call in another state",
        "A call that is under way or unclear is settled by the next attempt. See the workflow's page for the others.",
    ),
    Kind.NOT_AT_SERVICE: (
        "The service has no such call",
        "No worker makes it again. Ask the service's owners; do by hand what the patient was told.",
    ),
    Kind.REVERSED_AT_SERVICE: (
        "Somebody has reversed the call at the service",
        "The workflow goes on as if it stood: cancel it, or do the call again by hand.",
    ),
    Kind.NOT_TOLD: ("The service could not be asked", "Run the command again when it answers."),
}


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time: give 2026-03-02T09:40Z, or a date (UTC)") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


class Command(HelpInLines):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            *("--since",), type=_time, default="1970-01-01", metavar="TIME", help="only calls that were started since"
        )
        parser.add_argument(
            "--json", action="store_true", dest="in_json", help="a JSON object a line, one a difference"
        )

    def handle(self, *args: Any, since: datetime, in_json: bool, **options: Any) -> None:
        found: Counter[Kind] = Counter()
        for difference in compare(since, self.stderr.write):
            found[difference.kind] += 1
            self.stdout.write(json.dumps(asdict(difference)) if in_json else self._sentences(difference))
        for kind, number in found.items():
            self.stderr.write(f"{number:,}: {WORDS[kind][0]}.")
        if found:
            sys.exit(1)
        self.stderr.write("Nothing differs.")

    def _sentences(self, of: Difference) -> str:
        what, cure = WORDS[of.kind]
        state = f" ({Effect.State(of.state).label})" if of.state else ""
        service = ", ".join(filter(None, [of.amount, of.reference, of.at]))
        lines = [
            self.style.WARNING(f"{what}{state}: {titled_step(of.workflow_type, of.step)}"),
            f"  at the service: {service}" if service else "",
            f"  key {of.key}" if of.key else "",
            f"  submission {of.submission}" if of.submission else "",
            f"  workflow {of.workflow_id} ({of.workflow_type})" if of.workflow_id else "",
            f"  {of.error}" if of.error else "",
            f"  {cure}",
        ]
        return "\n".join(filter(None, lines))
