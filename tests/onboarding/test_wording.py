"""Staff and patients are told something of every step and of every way in which an onboarding can fail."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import onboarding
import workflows
from onboarding import checks
from onboarding.samples import samples
from onboarding.sandbox import services
from onboarding.sandbox.server import FAULT_CODES
from onboarding.wording import CALLER, CODES, RESULTS, STEPS, WORDING, masked_email, phone_ending
from onboarding.workflow import ONBOARDING
from workflows.definition import value_at
from workflows.wording import ENGINE_CODES

# They are of the sandbox's own pages, and no workflow meets them.
OF_THE_SANDBOXS_PAGES = {"bad_fault", "no_such_fault", "no_such_answer", "no_such_page"}
# An undo that is refused so has been done before: its client takes it for that.
NO_FAILURES = {"already_refunded", "already_withdrawn"}


def test_every_step_has_words_and_a_phase_is_a_run_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(STEPS) == [step.name for step in ONBOARDING.steps]
    assert all(words.title and words.phase for words in STEPS.values())
    runs = [phase for phase, _ in groupby(STEPS.values(), key=lambda words: words.phase)]
    assert len(runs) == len(set(runs))
    assert list(checks.check_wording()) == []
    monkeypatch.delitem(STEPS, "exchange_token")
    (message,) = checks.check_wording()
    assert (message.id, message.is_serious()) == ("onboarding.E003", True)
    assert "exchange_token" in message.msg


def codes_in(package: Any) -> Iterator[str]:
    """Each code that is written in the sources of a package, as `code="..."` or as what the sandbox refuses with."""
    texts = [path.read_text(encoding="utf-8") for path in Path(package.__path__[0]).rglob("*.py")]
    for text in (text for text in texts if "code=" in text or "Refused(" in text):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                given = [each.value for each in node.keywords if each.arg == "code"]
                if isinstance(node.func, ast.Name) and node.func.id == "Refused":
                    given += node.args[1:2]
                yield from (each.value for each in given if isinstance(each, ast.Constant) and each.value)


def test_every_code_of_the_sources_has_words() -> None:
    of_onboarding = set(codes_in(onboarding)) - OF_THE_SANDBOXS_PAGES - NO_FAILURES
    kinds = re.findall(r'call\.record\("(\w+)"', Path(services.__file__).read_text())
    of_onboarding |= {f"unknown_{kind}" for kind in kinds}
    assert {"unknown_visit", "card_declined", "program_full", "no_answer", "email_taken"} <= of_onboarding
    assert (of_onboarding | {*FAULT_CODES.values()}) - set(CODES) - set(ENGINE_CODES) == set()
    of_the_engine = set(codes_in(workflows))
    assert {"poison", "expired", "unsettled"} <= of_the_engine
    assert of_the_engine - set(ENGINE_CODES) - set(CODES) == set()


def test_what_a_call_returns_has_a_label_and_what_is_shown_of_the_caller_is_in_the_payload() -> None:
    returned = {name for step in ONBOARDING.steps for name in step.returns or ()}
    assert returned <= set(RESULTS)
    assert WORDING.money
    paths = [field.path for field in CALLER] + [WORDING.money.amount, WORDING.money.currency]
    for each in samples(20, seed=5):
        assert all(value_at(each.payload, path) is not None for path in paths)


@pytest.mark.parametrize(
    ("mask", "value", "shown"),
    [
        (masked_email, "ada@example.com", "a•••@example.com"),
        *((masked_email, hidden, "•••") for hidden in ("x@y", "@y", "ada", None, "")),
        (phone_ending, "+15550102323", "ending 23"),
        *((phone_ending, hidden, "•••") for hidden in ("23", None, {"a": 1})),
    ],
)
def test_of_an_address_and_of_a_number_only_that_is_shown_by_which_a_caller_is_verified(
    mask: Callable[[Any], str], value: Any, shown: str
) -> None:
    assert mask(value) == shown


def test_a_code_that_a_step_raises_and_that_has_no_words_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(checks.check_codes()) == []
    monkeypatch.setattr(checks, "CODES", {code: words for code, words in checks.CODES.items() if code != "email_taken"})
    (message,) = checks.check_codes()
    assert (message.id, "email_taken" in message.msg) == ("onboarding.W001", True)
