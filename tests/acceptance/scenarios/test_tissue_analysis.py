"""Tissue analyses, in real worker processes: chains of jobs that run elsewhere and report their ends, or do not."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.scenarios.watching import TISSUE_ANALYSIS, requests, until_it
from tests.processes import environment, until
from tests.scenarios import services
from workflows.models import Signal, State, Workflow

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = ["upload", "tiles", "prediction", "annotations", "report"]


class Jobs:
    """The process that runs the jobs, and how often it reports their ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self, reports: dict[str, int]) -> None:
        (self.folder / "reports").write_text(json.dumps(reports))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.job_runner"],
            cwd=settings.BASE_DIR,
            env={**environment(), "DJANGO_SETTINGS_MODULE": "config.settings"},
        )

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    folder = tmp_path / "jobs"
    folder.mkdir()
    monkeypatch.setenv("SCENARIOS_JOBS", str(folder))
    runner = Jobs(folder)
    yield runner
    runner.end()


def an_analysis(image: str = "slide-1") -> Workflow:
    return engine.submit({"image": image}, workflow_type="tissue_analysis")


def ran() -> Counter[tuple[int, str]]:
    return Counter((entry["about"], entry["ran"]) for entry in services.entries() if "ran" in entry)


def test_tissue_analyses_end_whatever_becomes_of_the_reports(runworker: Start, jobs: Jobs) -> None:
    analyses = [an_analysis(f"slide-{n}") for n in range(12)]
    # Of each analysis one report is lost, one told twice, and one twice and then in a message of its own.
    reports = {}
    for n, analysis in enumerate(analyses):
        for times, place in ((0, n), (2, n + 1), (3, n + 2)):
            reports[f"{JOBS[place % len(JOBS)]} for {analysis.pk}"] = times
    jobs.begin(reports)
    worker = runworker(TISSUE_ANALYSIS, arguments=("--processes", "2"))
    for analysis in analyses:
        complete = until_it(State.COMPLETE, analysis, worker)
        image = analysis.payload["image"]
        assert complete.context["report"] == f"report of annotations of prediction of tiles of upload of {image}"
    assert ran() == Counter({(analysis.pk, job): 1 for analysis in analyses for job in JOBS})
    assert set(requests().values()) == {1}
    # 0, 1, 2 and 3 reports are so many signals. Some come after the end: of what was found by looking.
    stored = {0: 0, 1: 1, 2: 1, 3: 2}
    expected = Counter(
        {f"{job} for {a.pk}": stored[reports.get(f"{job} for {a.pk}", 1)] for a in analyses for job in JOBS}
    )
    until(lambda: told() == +expected, what=told)


def told() -> Counter[str]:
    """How many signals there are about each job."""
    signals = Signal.objects.values_list("name", "workflow_id")
    return Counter(f"{name.removesuffix('.ended')} for {workflow}" for name, workflow in signals)
