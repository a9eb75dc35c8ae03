"""Where tests let a worker die. What they find out by it is in tests/acceptance/faults."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

REACH = "import django; django.setup(); from workflows import failpoints as f; f.reach({}); print('alive')"
WRITE = (
    "import django; django.setup(); from workflows import failpoints as f; "
    "f.reach_when_written('after_result', 'pay'); print('deferred', flush=True); f.deferred_written(); print('alive')"
)


def run(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "DEBUG": "1", **environ},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("armed", ["after_call", "after_call:pay", "before_commit, after_call:pay"])
def test_a_process_that_reaches_one_is_killed(armed: str) -> None:
    assert run(REACH.format("'after_call', 'pay'"), ONRAMP_FAILPOINT=armed).returncode == -9


@pytest.mark.parametrize("armed", ["", "before_intent", "after_call:refund"])
def test_no_other_is(armed: str) -> None:
    ended = run(REACH.format("'after_call', 'pay'"), ONRAMP_FAILPOINT=armed)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


def test_with_a_folder_only_the_first_process_is(tmp_path: Path) -> None:
    environ = {"ONRAMP_FAILPOINT": "after_call:pay,after_call:refund", "ONRAMP_FAILPOINT_ONCE": str(tmp_path)}
    codes = [run(REACH.format("'after_call', 'pay'"), **environ).returncode for _ in range(2)]
    assert codes == [-9, 0]
    assert [each.name for each in tmp_path.iterdir()] == ["after_call:pay"]


def test_what_is_deferred_is_reached_when_it_is_written() -> None:
    ended = run(WRITE, ONRAMP_FAILPOINT="after_result:pay")
    assert (ended.returncode, ended.stdout) == (-9, "deferred\n")


def test_none_can_be_armed_in_production() -> None:
    production = {"DEBUG": "0", "SECRET_KEY": "k" * 50, "DATABASE_URL": "postgres://127.0.0.1:1/none"}
    ended = run(REACH.format("'after_call'"), ONRAMP_FAILPOINT="after_call", **production)
    assert ended.returncode == 1
    assert "ImproperlyConfigured: ONRAMP_FAILPOINT" in ended.stderr
    assert run(REACH.format("'after_call'"), **production).stdout == "alive\n"


def test_a_misspelt_one_is_refused() -> None:
    assert "ImproperlyConfigured" in run(REACH.format("'after_call'"), ONRAMP_FAILPOINT="after_cal").stderr
