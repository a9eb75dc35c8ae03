"""What is said of workers by their health file."""

import os
import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from workflows.engine import healthfile
from workflows.engine.healthfile import Report
from workflows.engine.process_status import NEVER, WorkerStatus
from workflows.engine.supervisor import Child, Options, Supervisor

REFUSED = "OperationalError: connection refused, at db.example:5432"


@pytest.mark.parametrize(
    ("silences", "said"),
    [
        ([], ""),
        ([0.5, 179.0], ""),
        ([200.0, 190.0], f"no database for 3 min: {REFUSED}"),
        ([0.5, 250.0], f"1 worker process has not spoken to the database for 4 min: {REFUSED}"),
        ([0.5, 250.0, 400.0], f"2 worker processes have not spoken to the database for 6 min: {REFUSED}"),
    ],
)
def test_it_says_how_many_were_without_the_database_for_how_long_and_why(silences: list[float], said: str) -> None:
    assert healthfile.silence(Report(silences, REFUSED), 180) == said
    assert healthfile.silence(Report(silences, ""), 180) == said.removesuffix(f": {REFUSED}")


def test_a_process_in_a_step_is_not_silent_before_the_step_is_overdue() -> None:
    idle = WorkerStatus(heard_at=100.0)
    in_step = idle._replace(deadline=700.0)
    assert idle.deadline == NEVER
    assert [healthfile.heard_until(idle, now) for now in (101.0, 900.0)] == [100.0, 100.0]
    assert [healthfile.heard_until(in_step, now) for now in (101.0, 900.0)] == [101.0, 700.0]


def test_a_child_that_never_gets_as_far_as_the_database_is_silent_however_often_it_is_replaced() -> None:
    supervisor = Supervisor(Options(processes=2), ())
    supervisor._heard = {slot: time.monotonic() - 200 for slot in supervisor._slots}
    assert [round(each) for each in supervisor._report().silences] == [200, 200], "none is there"
    slot = supervisor._slots.pop()
    supervisor._children[1] = Child(slot, forked_at=time.monotonic())
    slot.write(WorkerStatus(trouble=REFUSED))
    report = supervisor._report()
    assert ([round(each) for each in report.silences], report.trouble) == ([200, 200], REFUSED)
    slot.write(WorkerStatus(heard_at=time.monotonic()))
    report = supervisor._report()
    assert ([round(each) for each in report.silences], report.trouble) == ([0, 200], "")
    slot.clear()  # the next child
    assert round(supervisor._report().silences[0]) == 0


def test_a_process_that_has_drained_the_queue_is_missed_by_nobody() -> None:
    supervisor = Supervisor(Options(processes=2, drain=True), ())
    supervisor._wanted = 0
    assert supervisor._report().silences == []


# --- The command ------------------------------------------------------------------------------------------------


def test_it_says_that_they_are_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthfile.write(tmp_path / "health", Report([0.1], ""))
    call_command("workerhealth", health_file=str(tmp_path / "health"))
    assert capsys.readouterr().out == "The workers are well.\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "health"], "nothing is left beside it"


def test_it_tells_a_file_that_is_old_and_none_and_one_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "health"
    with pytest.raises(CommandError, match=r"there is no .*: no worker has been started, or all have ended"):
        call_command("workerhealth", health_file=str(path))
    path.write_text("{")
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("workerhealth", health_file=str(path))
    healthfile.write(path, Report([0.1], ""))
    os.utime(path, (time.time() - 40, time.time() - 40))
    for arguments in ({}, {"liveness": True}):
        with pytest.raises(CommandError, match="the last word of the workers is 40 s old"):
            call_command("workerhealth", health_file=str(path), **arguments)
    call_command("workerhealth", health_file=str(path), max_age=60)


def test_the_database_is_no_matter_of_liveness(tmp_path: Path, settings: Settings) -> None:
    settings.WORKER_HEALTH_FILE = str(tmp_path / "health")
    healthfile.write(tmp_path / "health", Report([200.0], REFUSED))
    with pytest.raises(CommandError, match=f"not well: no database for 3 min: {REFUSED}"):
        call_command("workerhealth")
    call_command("workerhealth", max_silence=300)
    call_command("workerhealth", liveness=True)


def test_it_has_to_know_the_file() -> None:
    with pytest.raises(CommandError, match="Name the file"):
        call_command("workerhealth")


def test_a_file_that_is_ahead_of_the_clock_is_not_young_until_the_clock_has_caught_up(tmp_path: Path) -> None:
    """Its supervisor was killed, and the host's clock has been put right since: by an hour, and back."""
    path = tmp_path / "health"
    healthfile.write(path, Report([0.1], ""))
    os.utime(path, (time.time() + 3600, time.time() + 3600))
    assert "ahead of the clock" in healthfile.failure_reason(path)
