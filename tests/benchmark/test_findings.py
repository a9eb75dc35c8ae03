"""The arithmetic of the benchmark: medians, spreads, verdicts, and the JSON that all of it is written into."""

from __future__ import annotations

import argparse
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from tests.benchmark.__main__ import document
from tests.benchmark.findings import Finding, Report, counts, number, ratios, summary, table_of
from tests.benchmark.setting import SIZES, add_sizes, chosen_sizes


def test_a_target_holds_for_the_median_of_the_rounds() -> None:
    assert Finding("m", "w", [1.0, 3.0, 9.0], at_least=3.0).met is True
    assert Finding("m", "w", [1.0, 2.9, 9.0], at_least=3.0).met is False
    assert Finding("m", "w", [1.0, 3.0, 9.0], at_most=3.0).met is True
    assert Finding("m", "w", [1.0, 3.1, 9.0], at_most=3.0).met is False
    assert Finding("m", "w", [1.0]).met is None


def test_rounds_on_both_sides_of_a_target_are_noise() -> None:
    met = Finding("m", "w", [2.0, 3.5, 9.0], at_least=3.0)
    missed = Finding("m", "w", [2.0, 2.5, 9.0], at_least=3.0)
    clear = Finding("m", "w", [3.0, 3.5, 9.0], at_least=3.0)
    assert (met.verdict, missed.verdict) == ("met, within the noise", "not met, within the noise")
    assert (clear.verdict, clear.is_noise) == ("met", False)
    assert not Finding("m", "w", [2.0, 9.0]).is_noise


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    missing = Finding("m", "w", [], at_least=2.0, why_none="left out: no such package")
    assert missing.met is None
    assert missing.verdict == "not measured: left out: no such package"
    assert (missing.measured, missing.spread) == ("", "")


@pytest.mark.parametrize(
    ("value", "shown"), [(0.004, "0.00"), (0.757, "0.76"), (9.994, "9.99"), (14.25, "14.2"), (5895.4, "5,895")]
)
def test_a_number_has_the_figures_that_count(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_ratio_is_of_neighbours() -> None:
    assert ratios([10.0, 40.0], [5.0, 10.0]) == [2.0, 4.0]


def test_a_round_in_which_one_of_the_two_did_nothing_has_no_ratio() -> None:
    assert ratios([10.0, 0.0, 8.0], [0.0, 5.0, 2.0]) == [4.0]


def report() -> Report:
    found = [
        Finding("drain", "engine", [700.0, 800.0], "workflows/s"),
        Finding("drain", "engine / loop", [0.7, 0.9], at_least=0.75),
        Finding("drain", "engine / peer", [], at_least=2.0, why_none="left out: gone"),
        Finding("pickup", "median", [12.0], "ms", at_most=10),
    ]
    return Report("drain", "of a drain", [table_of(found)], found, [{"engine": 700.0}], ["a note"], 1.26)


def test_the_summary_has_a_line_for_each_target() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(summary([report()]))
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in console.export_text().splitlines()]
    assert [line for line in lines if line] == [
        ["drain", "engine / loop", "at least 0.75", "0.80", "0.70 - 0.90", "met, within the noise"],
        ["drain", "engine / peer", "at least 2.00", "", "", "not measured: left out: gone"],
        ["pickup", "median", "at most 10.0 ms", "12.0 ms", "", "not met"],
    ]
    assert counts([report()]).startswith("1 of 3 targets met, 1 not met, 1 not measured. 1 lie within the spread")


def test_the_json_has_each_round_and_each_target() -> None:
    told: dict[str, Any] = document(
        datetime(2026, 1, 2, tzinfo=UTC), {"cores": 2}, {"rounds": 2}, [report()], failed={"claim": "no room"}
    )
    assert json.loads(json.dumps(told)) == told
    assert told["began"] == "2026-01-02T00:00:00+00:00"
    assert (told["machine"], told["sizes"], told["seconds"]) == ({"cores": 2}, {"rounds": 2}, 1.3)
    assert told["failed"] == {"claim": "no room"}
    assert told["measures"]["drain"]["rounds"] == [{"engine": 700.0}]
    assert [each["what"] for each in told["targets"]] == ["engine / loop", "engine / peer", "median"]
    assert told["targets"][0] == {
        "measure": "drain",
        "what": "engine / loop",
        "unit": "ratio",
        "at_least": 0.75,
        "at_most": None,
        "measured": pytest.approx(0.8),
        "least": 0.7,
        "most": 0.9,
        "rounds": [0.7, 0.9],
        "met": True,
        "within_the_noise": True,
        "verdict": "met, within the noise",
    }


def test_quick_sizes_are_no_larger_and_what_is_asked_for_wins() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    add_sizes(parser)
    usual, quick = (chosen_sizes(parser.parse_args(words)) for words in ([], ["--quick"]))
    assert all(quick[size.name] <= usual[size.name] for size in SIZES)
    assert chosen_sizes(parser.parse_args(["--quick", "--rounds", "9"])) == {**quick, "rounds": 9}
