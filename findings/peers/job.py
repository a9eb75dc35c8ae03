"""What each peer runs. It says when it starts and when it has ended, in a file of the peer's."""

import os
import time


def job(peer: str, kind: str) -> None:
    say(peer, "start", kind)
    if kind == "raises":
        raise ValueError("it raises")
    time.sleep(15 if kind.startswith("long") else 0)
    say(peer, "end", kind)


def say(peer: str, word: str, kind: str) -> None:
    with open(f"{peer}.seen", "a") as seen:
        seen.write(f"{word} {kind} {os.environ['WORKER']} {time.time()}\n")
