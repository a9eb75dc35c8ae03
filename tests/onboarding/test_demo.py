"""The demo's command; `.ci/run` runs it whole."""

import os
import signal
import subprocess
import sys
from time import sleep

import pytest

# What the command does when it is interrupted, with a stop that takes its time and a process that it starts for it.
STOPPING = """
import django, signal, subprocess, sys, time
django.setup()
from onboarding.management.commands.demo import _interrupt
signal.signal(signal.SIGINT, _interrupt)
signal.signal(signal.SIGTERM, _interrupt)
try:
    print("running", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    subprocess.run([sys.executable, "-c", "import time; time.sleep(1); print('stopped', flush=True)"])
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_impatience_does_not_interrupt_the_stopping(number: signal.Signals) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-c", STOPPING],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert demo.stdout is not None
    assert demo.stdout.readline() == "running\n"
    for _ in range(3):
        os.killpg(demo.pid, number)
        sleep(0.2)
    assert demo.communicate(timeout=20)[0] == "stopped\n"
    assert demo.returncode == 0
