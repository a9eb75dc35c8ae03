"""What a page looks like: colours from one place, one primary button, times with UTC, words that are explained."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from onboarding.workflow import ONBOARDING
from tests.servers import ROOT
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from tests.workflows.admin.tasks import IN_DOUBT, task, url, words
from workflows import times
from workflows.console.help import STATES, WORDS
from workflows.features.corrections.operations import as_read
from workflows.models import State
from workflows.templatetags.cards import timed

STYLES = [ROOT / "workflows/static/workflows/console.css", ROOT / "staff/static/staff/session.css"]


@pytest.mark.parametrize("path", STYLES, ids=lambda path: path.name)
def test_no_colour_is_named_outside_the_tokens(path: Path) -> None:
    assert re.findall(r"#[0-9a-f]{3,8}\b(?!.*\{)|rgba?\(|hsla?\(", path.read_text()) == []


def test_what_cannot_be_done_does_not_touch_the_panel_below_it() -> None:
    assert re.search(r'details\[data-key="barred"\] \{ margin-bottom: \d\dpx', STYLES[0].read_text())


def test_each_state_has_its_words_on_the_page_of_help_and_in_the_docs(as_: Login) -> None:
    assert {state.label for state in State} <= {says for says, *_ in STATES}
    docs, home = (ROOT / "docs/console.md").read_text(), as_("nobody").get("/admin/").content.decode()
    for line in (*STATES, *WORDS):
        assert f"| {' | '.join(line)} |" in docs
    assert 'href="/admin/help/"' in home
    shown = words(as_("nobody").get("/admin/help/").content.decode())
    assert all(word in shown for word, *_ in (*STATES, *WORDS))


def test_a_page_has_one_primary_button_at_most_and_what_is_dangerous_is_red(as_: Login) -> None:
    lead = as_("support lead")
    for make in rows.IN_STATE.values():
        html = lead.get(f"/admin/workflows/workflow/{make().pk}/change/").content.decode()
        assert html.count("button-primary") <= 1
        assert re.findall(r'class="button button-danger" [^>]*>(.*?)</a>', html) in ([], ["Cancel"])
    dialogue = lead.get(f"/admin/workflows/workflow/{rows.failed().pk}/retry/").content.decode()
    assert ("button-primary" in dialogue, "button-danger" in dialogue) == (True, False)
    safe = lead.get(url(task(task_type="undo_in_doubt", team="operations"))).content.decode()
    assert re.findall(r'<button class="([^"]*)" name="decision"', safe) == ["button button-primary", "button"]


@pytest.mark.parametrize(
    ("said", "utc"),
    [
        ("Ended at 2026-03-01 15:02 Berlin time.", "2026-03-01 14:02:00 UTC"),
        ("Ended at 2026-03-01 15:02:07 Berlin time.", "2026-03-01 14:02:07 UTC"),
        ("Down since 14:02 Berlin time, <b>", None),
        ("2026-10-25 02:30 Berlin time (00:30 UTC)", ""),  # came twice
        ("At 99:99 Berlin time, says somebody", ""),
    ],
)
def test_a_time_in_a_sentence_has_utc(said: str, utc: str | None) -> None:
    with timezone.override(ZoneInfo("Europe/Berlin")):
        html = timed(said)
        today = datetime.fromisoformat(f"{timezone.localdate()} 14:02").replace(tzinfo=ZoneInfo("Europe/Berlin"))
    assert re.findall(r'title="([^"]*)"', html) == (
        [times.utc(today.astimezone(UTC))] if utc is None else [utc] * bool(utc)
    )
    assert words(html) == words(said.replace("<", "&lt;"))


def test_a_code_without_words_is_only_for_engineers(as_: Login) -> None:
    html = as_("support").get(f"/admin/workflows/workflow/{rows.failed().pk}/change/").content.decode()
    standing, rest = html.split('<details id="engineer"')
    assert "Something unforeseen happened. Ended at" in words(standing)
    assert "card_declined" not in standing
    assert "card_declined: The card was declined" in rest


def test_an_unclear_call_says_where_to_look_and_each_of_onboarding_says_it_itself(as_: Login) -> None:
    html = as_("support lead").get(url(task(**IN_DOUBT, team="operations"))).content.decode()
    assert "In the service that “Reserve” calls" in html
    once = [step for step in ONBOARDING.steps if step.once]
    assert all(ONBOARDING.wording.steps[step.name].where for step in once)
    assert {field for step in once for field in step.returns or ()} - set(ONBOARDING.wording.examples) == {
        "insurance_verified"
    }


@pytest.mark.parametrize(
    ("field", "typed", "read"),
    [
        ("patient.phone", "(555) 010-2323", "+15550102323"),
        ("patient.phone", "+15550102323", "+15550102323"),
        ("patient.phone", "soon", "soon"),
        ("patient.email", "Ada <ada@example.com>", "ada@example.com"),
        ("address.city", "(555) 010-2323", "(555) 010-2323"),
    ],
)
def test_a_correction_takes_what_find_takes(field: str, typed: str, read: str) -> None:
    assert as_read(ONBOARDING, field, typed) == read
