"""`manage.py reconcile`: the differences between the ledger and the services after a restore to a point in time."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import Any

from workflows.definition import titled_step
from workflows.features.doctor import adoption
from workflows.features.doctor.comparison import Difference, Kind, compare
from workflows.management.arguments import HelpInLines, time
from workflows.management.database import DatabaseCommand
from workflows.models import Effect

HELP = """\
Where the ledger of calls and the services differ: for people, after a restore to a point in time.

The services went on when the database fell back. For each step that lists its calls, the command asks
the service what it has performed, and compares that with the ledger, in both directions; what a listing
does not have it looks up, one call at a time. It changes nothing, here or there: you decide.

With --adopt it writes the calls that the ledger has lost on it, as unclear, and the next attempt looks
them up. Without that, it makes them again, under the same key: a service that has forgotten the key
performs the call a second time. A call whose reversal is lost, too, is left to you: cancel its workflow.

What people have done by hand is left out: no service knows it by a key of ours.

Stop the workers first, or calls that they have just made are listed.

It ends with 0 when nothing differs, and with 1 when something does, or could not be compared.
"""

EXAMPLES = """\
examples:
  manage.py reconcile --since 2026-03-02T09:40Z       the time that the database was restored to, or a little before
  manage.py reconcile --since 2026-03-02 --json > differences.jsonl
  manage.py reconcile --since 2026-03-02 --adopt      before the workers are started again
  manage.py reconcile                                 everything: as many look-ups as there are charges
"""

# The words for each kind, and what to do.
WORDS = {
    Kind.NO_SUBMISSION: (
        "The database has no such submission",
        "Have its client send it again, under its Idempotency-Key: the service then answers what it answered before. "
        "Else reverse the call at the service.",
    ),
    Kind.NOT_ON_LEDGER: (
        "The ledger has no such call",
        "The next attempt makes it again, under the same key, which a service forgets. Use --adopt; or, if the list "
        "has the call's reversal, too, cancel the workflow first.",
    ),
    Kind.OTHER_STATE: (
        "The ledger has the call in another state",
        "A call that is under way or unclear is settled by the next attempt. See the workflow's page for the others.",
    ),
    Kind.NOT_AT_SERVICE: (
        "The service has no such call",
        "No worker makes it again. Ask the service's owners; do by hand what the sender was told.",
    ),
    Kind.REVERSED_AT_SERVICE: (
        "Somebody has reversed the call at the service",
        "The workflow goes on as if it stood: cancel it, or do the call again by hand.",
    ),
    Kind.NOT_TOLD: ("The service could not be asked", "Run the command again when it answers."),
}


class Command(HelpInLines, DatabaseCommand):
    help = HELP
    examples = EXAMPLES

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            *("--since",), type=time, default="1970-01-01", metavar="TIME", help="only calls that were started since"
        )
        parser.add_argument(
            "--json", action="store_true", dest="in_json", help="a JSON object a line, one a difference"
        )
        parser.add_argument(
            "--adopt", action="store_true", help="write the calls that the ledger has lost on it, as unclear"
        )

    def handle(self, *args: Any, since: datetime, in_json: bool, adopt: bool, **options: Any) -> None:
        found: Counter[Kind] = Counter()
        lost: list[Difference] = []
        for difference in compare(since, self.stderr.write):
            found[difference.kind] += 1
            if difference.kind == Kind.NOT_ON_LEDGER:
                lost.append(difference)
            self.stdout.write(json.dumps(asdict(difference)) if in_json else self._sentences(difference))
        if adopt:
            adopted = adoption.adopt(lost)
            self.stderr.write(f"{len(adopted):,} of {len(lost):,} lost calls are on the ledger again, as unclear.")
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
