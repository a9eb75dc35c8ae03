"""Where tests let a worker die. What they find out by it is in tests/acceptance/faults."""

import os
from collections.abc import Callable
from importlib import reload

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from workflows import failpoints

REFUSED = 3


def ends(do: Callable[[], object], armed: str, *, debug: bool = True) -> int:
    """How a process of its own ends that starts with this environment, and does that."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.environ |= {"ONRAMP_FAILPOINT": armed, "ONRAMP_FAILPOINT_ONCE": ""}
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
        *((name, -9) for name in ("after_call", "before_commit, after_call:pay")),
        ("after_call:refund", 0),
        ("after_cal", REFUSED),
    ],
)
def test_a_process_that_reaches_one_is_killed_and_no_other_is_and_a_misspelt_one_is_refused(
    armed: str, code: int
) -> None:
    assert ends(reach, armed) == code


def test_none_can_be_armed_in_production() -> None:
    assert [ends(reach, armed, debug=False) for armed in ("after_call", "")] == [REFUSED, 0]
