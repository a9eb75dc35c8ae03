"""The flag that signal handlers set."""

import os
import random
import signal
import subprocess
import sys
import time

from workflows.stop_flag import Flag

# With threading.Event in its place this ends within a second: the handler waits for the thread that it interrupted.
SHOWER = """
import signal, sys
from workflows.stop_flag import Flag
flag, rounds = Flag(), 0
signal.signal(signal.SIGTERM, lambda *_: flag.set())
print("ready", flush=True)
while rounds < 500:
    flag.wait(5.0)
    flag.clear()
    rounds += 1
print("done", flush=True)
"""


def test_a_shower_of_signals_does_not_stop_it() -> None:
    program = [sys.executable, "-c", SHOWER]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            give_up_at = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < give_up_at:
                os.kill(process.pid, signal.SIGTERM)
                time.sleep(random.uniform(0, 0.0005))
            assert process.poll() is not None, "it hangs"
        finally:
            process.kill()
        assert process.stdout.read() == "done\n"


def test_it_wakes_who_sleeps_on_it_and_says_whether_it_is_set() -> None:
    flag = Flag()
    assert flag.wait(0.01) is False
    flag.set()
    assert flag.is_set()
    assert flag.wait(60) is True
    flag.clear()
    assert flag.wait(0.01) is False
