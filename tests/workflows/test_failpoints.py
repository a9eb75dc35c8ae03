"""Where tests let a worker die. What they find out by it is in tests/acceptance/faults."""

import os
from collections.abc import Callable
from importlib import reload
from pathlib import Path

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from workflows import failpoints

REFUSED = 3


def ends(do: Callable[[], object], armed: str, *, once: str = "", debug: bool = True) -> int:
    """How a process of its own ends that starts with this environment, and does that."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ |= {"ONRAMP_FAILPOINT": armed, "ONRAMP_FAILPOINT_ONCE": once}
            settings.DEBUG = debug
            reload(failpoints)
            do()
            code = 0
        except ImproperlyConfigured:
            code = REFUSED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def reach() -> None:
    failpoints.reach("after_call", "pay")


@pytest.mark.parametrize(
    ("armed", "code"),
    [
        *((name, -9) for name in ("after_call", "after_call:pay", "before_commit, after_call:pay")),
        *((name, 0) for name in ("", "before_intent", "after_call:refund")),
        ("after_cal", REFUSED),
    ],
)
def test_a_process_that_reaches_one_is_killed_and_no_other_is_and_a_misspelt_one_is_refused(
    armed: str, code: int
) -> None:
    assert ends(reach, armed) == code


def test_with_a_folder_only_the_first_process_is(tmp_path: Path) -> None:
    assert [ends(reach, "after_call:pay,after_call:refund", once=str(tmp_path)) for _ in range(2)] == [-9, 0]
    assert [each.name for each in tmp_path.iterdir()] == ["after_call:pay"]


def test_what_is_deferred_is_reached_when_it_is_written() -> None:
    def defer() -> None:
        failpoints.reach_when_written("after_result", "pay")

    def write() -> None:
        defer()
        failpoints.held_back_written()

    assert [ends(do, "after_result:pay") for do in (defer, write)] == [0, -9]


def test_none_can_be_armed_in_production() -> None:
    assert [ends(reach, armed, debug=False) for armed in ("after_call", "")] == [REFUSED, 0]
