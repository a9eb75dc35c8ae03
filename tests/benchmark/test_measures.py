"""What the measures make of their rounds: which ratio is held against which target."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from tests.benchmark import claim, drain, spike
from tests.benchmark.__main__ import MEASURES, measure_all
from tests.benchmark.clients import Round
from tests.benchmark.findings import Finding, Report
from tests.benchmark.peers.contest import PeerError
from tests.benchmark.setting import Setting


def targets(found: list[Finding]) -> dict[str, tuple[list[float], float | None, float | None]]:
    return {each.what: (list(each.rounds), each.at_least, each.at_most) for each in found}


def test_the_engine_is_held_against_the_loops_and_the_peers_of_the_same_round() -> None:
    plain, recorded = drain.DRAINS
    rounds = [
        {"bare loop, two commits": 10.0, "bare loop, one commit": 20.0, "engine": 8.0, "procrastinate": 4.0},
        {"bare loop, two commits": 5.0, "bare loop, one commit": 10.0, "engine": 5.0, "procrastinate": 5.0},
    ]
    found = drain.findings(plain, rounds, {"django_tasks_db": "no network", "dbos": "no network"})
    assert targets(found) == {
        "bare loop, two commits": ([10.0, 5.0], None, None),
        "bare loop, one commit": ([20.0, 10.0], None, None),
        "engine": ([8.0, 5.0], None, None),
        "procrastinate": ([4.0, 5.0], None, None),
        "engine / bare loop, two commits": ([0.8, 1.0], 0.75, None),
        "engine / bare loop, one commit": ([0.4, 0.5], 0.4, None),
        "engine / procrastinate": ([2.0, 1.0], 2.0, None),
        "engine / django_tasks_db": ([], 2.0, None),
    }
    assert found[-1].verdict == "not measured: left out: no network"
    (missing,) = drain.findings(recorded, [{"engine": 1.0}], {"dbos": "no network"})[1:]
    assert (missing.what, missing.at_least) == ("engine / dbos", 4.0)


def sent(count: int, seconds: float) -> Round:
    return Round(1.0, latencies=[seconds] * count)


def test_the_intake_is_held_against_one_insert() -> None:
    rounds = [
        {"one INSERT": sent(10, 0.01), "Django view": sent(5, 0.01), "intake": sent(30, 0.02)},
        {"one INSERT": sent(10, 0.01), "Django view": sent(5, 0.01), "intake": sent(40, 0.03)},
    ]
    assert targets(spike.findings(64, rounds)) == {
        "intake / one INSERT": ([3.0, 4.0], 3.0, None),
        "intake / Django view": ([6.0, 8.0], None, None),
        "submissions/s, when quiet": ([30.0, 40.0], 6000, None),
        "99th percentile": ([20.0, 30.0], None, 90),
    }
    assert not any(each.has_target for each in spike.findings(7, rounds))


def test_a_claim_is_held_against_the_one_on_the_empty_table_and_to_its_pages_at_worst() -> None:
    empty = {"seconds": [1.0, 2.0, 9.0], "nothing_seconds": [1.0], "buffers": [3], "nothing_buffers": [3]}
    state = {"seconds": [2.0, 4.0, 6.0], "nothing_seconds": [0.5], "buffers": [4, 9], "nothing_buffers": [5, 6]}
    pair = {"empty": empty, "state": state}
    assert targets(claim.findings("1,000 waiting", [pair])) == {
        "buffers": ([9], None, 12),
        "time / that of the empty table": ([2.0], None, 1.5),
        "buffers of a look that finds nothing": ([6], None, 12),
        "its time / that of the empty table": ([0.5], None, 1.5),
    }
    del state["nothing_seconds"]
    assert list(targets(claim.findings("1,000 due", [pair]))) == ["buffers", "time / that of the empty table"]


def test_a_peer_that_breaks_is_left_out_and_what_it_broke_is_measured_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peers = cast(Any, [SimpleNamespace(name=name) for name in ("dbos", "absurd")])
    setting = Setting(cast(Any, None), Path(), argparse.Namespace(), peers=peers)
    tried: list[list[str]] = []

    def report(setting: Setting) -> Report:
        tried.append([each.name for each in setting.peers])
        if "dbos" in tried[-1]:
            raise PeerError("dbos", "has done 3 of 20 jobs", "Traceback ...\nMemoryError")
        return Report("drain", "", [], [], {})

    monkeypatch.setitem(MEASURES, "drain", SimpleNamespace(report=report))
    reports, failed = measure_all(["drain"], setting, Console(quiet=True))
    assert tried == [["dbos", "absurd"], ["absurd"]]
    assert ([each.name for each in reports], failed) == (["drain"], {})
    assert setting.missing == {"dbos": "has done 3 of 20 jobs: MemoryError"}
