"""`manage.py doctor`: what is wrong with this installation, the worst first."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from workflows.features.doctor.examination import examine
from workflows.features.doctor.findings import Finding
from workflows.management.arguments import HelpInLines

HELP = """\
What is wrong with this installation, in sentences, the worst first, each with what to do.

It looks at the settings of this environment, at PostgreSQL (sessions, vacuum, WAL archive, log
settings) and at what runs on it. It changes nothing, and waits ten seconds for each answer.

It ends with 0 when nothing is wrong, 1 when the worst is a warning, 2 when something is critical:
work stands still, or data, money or secrets are at risk. A database that is away is critical.
"""
NOT_SEEN = "Not seen from here: room on disks (the alert OnrampDiskFillsUp), and whether a backup can be restored."


class Command(HelpInLines):
    help = HELP
    requires_system_checks = ()  # it runs them itself

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="A JSON array of objects: level, about, what, cure.")

    def handle(self, *args: Any, **options: Any) -> None:
        found = examine()
        if options["json"]:
            told = [{**asdict(finding), "level": finding.level.name.lower()} for finding in found]
            self.stdout.write(json.dumps(told, indent=2))
        else:
            for finding in found:
                self._say(finding)
            self.stdout.write(f"{len(found)} found." if found else "Nothing is wrong.")
            self.stdout.write(NOT_SEEN)
        if found:
            sys.exit(found[0].level)

    def _say(self, finding: Finding) -> None:
        style = self.style.ERROR if finding.level > 1 else self.style.WARNING
        self.stdout.write(f"{style(finding.level.name.capitalize())}: {finding.what}")
        self.stdout.write(f"  {finding.cure}\n" if finding.cure else "")
