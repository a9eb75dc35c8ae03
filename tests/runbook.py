"""A page of the runbook, as somebody on call types it: its commands by a shell, and what they print."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers import ROOT

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.M | re.S)
COMMAND = re.compile(r"^# ((?:.*\\\n)*.*)\n", flags=re.M)
# A machine may have none. Only root can, and needs to, become somebody else.
SUDO = 'sudo() { test "$1 $2" = "-u postgres"; shift 2; [ $EUID != 0 ] || set -- runuser -u postgres -- "$@"; "$@"; }'


@dataclass
class Reader:
    """Whoever is on call. `places`: what stands here for the page's hosts, folders and times."""

    page: str
    folder: Path
    places: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def blocks(self, language: str, title: str = "") -> list[str]:
        """The blocks of the page, or under a title of it."""
        text = (ROOT / "docs" / self.page).read_text()
        if title:
            text = re.split(r"^##+ ", text.partition(f"# {title}\n")[2], maxsplit=1, flags=re.M)[0]
        return [block for kind, block in BLOCK.findall(text) if kind == language]

    def here(self, text: str) -> str:
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text

    def types(self, title: str, number: int = 0) -> str:
        """Type the commands of a block under a title. They end well, and print what the page shows."""
        block = self.blocks("console", title)[number]
        printed = self.runs(self.here("\n".join(COMMAND.findall(block))))
        assert all(line.strip() in printed for line in COMMAND.sub("", block).splitlines()), printed
        return printed

    def runs(self, script: str) -> str:
        with (self.folder / "out").open("w") as out:  # a server that is started would hold a pipe open
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail"],
                input=f"{SUDO}\n{script}",
                cwd=ROOT,
                env={**os.environ, "DEBUG": "1", **self.environ},
                stdout=out,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=600,
                check=False,
            )
        printed = (self.folder / "out").read_text()
        assert done.returncode == 0, f"{script}\n{printed}"
        return printed
