"""python -m tests.pictures: take the pictures of the docs again, over a demo of its own."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import django
from rich.console import Console

from tests.pictures.album import ALBUM, IMAGES
from tests.processes import until
from tests.servers import ROOT, empty_database

# The same submissions each time: one of each kind, so that it is soon over.
SEED = 13
SUBMISSIONS = 10
# Enough for charts.
WEEK = 60
PATIENCE = 240.0


def main() -> None:
    arguments = parse_arguments()
    screen = Console()
    pictures = [picture for picture in ALBUM if re.fullmatch(arguments.only, picture.name)]
    if not pictures:
        raise SystemExit(f"No picture is called so; there are: {', '.join(picture.name for picture in ALBUM)}")
    arguments.into.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from tests.pictures.camera import take  # here, so that a machine without Playwright can say --help

    with empty_database(f"onramp_pictures_{os.getpid()}") as url, tempfile.TemporaryDirectory() as state:
        screen.print("Starting the demo.")
        with demo(url, Path(state), arguments.submissions) as (console, printed):
            for file in take(pictures, arguments.into, console, printed):
                screen.print(f"{file.name:28} {file.stat().st_size / 1000:4.0f} kB", highlight=False)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--only", default=".*", metavar="REGEX", help="those whose names match (default: all)")
    parser.add_argument("--into", type=Path, default=IMAGES, metavar="FOLDER", help="default: docs/images")
    parser.add_argument("--submissions", type=int, default=SUBMISSIONS, metavar="N", help=f"default: {SUBMISSIONS}")
    return parser.parse_args()


@contextmanager
def demo(url: str, state: Path, submissions: int) -> Iterator[tuple[str, str]]:
    """A demo on that database that has come to rest: the address of its console, and what it has printed.

    It has free ports, and the sandbox's memory and the log in the folder `state`.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        intake, console, sandbox = (str(each.getsockname()[1]) for each in sockets)
    log = state / "demo.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                *[sys.executable, "manage.py", "demo", "--seed", str(SEED)],
                *["--submissions", str(submissions), "--week", str(WEEK)],
                *["--intake-port", intake, "--console-port", console, "--sandbox-port", sandbox],
                *["--state", str(state)],
            ],
            cwd=ROOT,
            env={**os.environ, "DEBUG": "1", "DATABASE_URL": url},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def is_at_rest() -> bool:
        assert process.poll() is None, f"The demo did not come to rest:\n{log.read_text()}"
        return "Ctrl-C stops everything." in log.read_text()

    try:
        until(is_at_rest, seconds=PATIENCE, what=log.read_text)
        yield f"http://127.0.0.1:{console}", log.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(90)


if __name__ == "__main__":
    main()
