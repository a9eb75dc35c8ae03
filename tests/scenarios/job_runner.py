"""Where the jobs of the tissue analysis run: a process of its own that takes jobs from a folder and reports their end.

The folder SCENARIOS_JOBS holds `<number>.job` for each job, `<number>.ended` for each that has ended, and `reports`,
which says how often the end of a job is reported, if not once. `python -m tests.scenarios.job_runner` is the process.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.scenarios import services


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a job."""

    result: str = ""
    error: str = ""


# --- Its clients' side --------------------------------------------------------------------------------


def submit(job: str, given: str, *, reply_to: int, idempotency_key: str) -> str:
    """Hand in a job, once for each key; its number. Its end is told the workflow `reply_to`, as `<job>.ended`."""
    services.asked("submit", f"{job} for {reply_to}", idempotency_key)
    with suppress(FileExistsError):
        _write(_file(idempotency_key, "job"), {"job": job, "given": given, "reply_to": reply_to})
    return idempotency_key


def find(*, idempotency_key: str) -> str | None:
    """The number of the job that was handed in under this key, if one was."""
    return idempotency_key if _file(idempotency_key, "job").exists() else None


def look(number: str) -> dict[str, str] | None:
    """What came of a job, if it has ended: the fields of `Ended`."""
    ended = _file(number, "ended")
    return json.loads(ended.read_text()) if ended.exists() else None


def _folder() -> Path:
    return Path(os.environ["SCENARIOS_JOBS"])


def _file(number: str, suffix: str) -> Path:
    return _folder() / f"{number}.{suffix}"


def _write(path: Path, content: dict[str, object]) -> None:
    """Whole or not at all. Raises FileExistsError when it is there already."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(content))
    try:
        os.link(draft, path)
    finally:
        draft.unlink()


# --- The process --------------------------------------------------------------------------------------


def main() -> None:
    """Run jobs until somebody ends us."""
    import django

    django.setup()
    while True:
        for job in sorted(_folder().glob("*.job")):
            if look(job.stem) is None:
                _run(job.stem, **json.loads(job.read_text()))
        time.sleep(0.02)


def _run(number: str, job: str, given: str, reply_to: int) -> None:
    services.note(ran=job, about=reply_to)
    ended = Ended(error="unreadable") if "unreadable" in given else Ended(result=f"{job} of {given}")
    _write(_file(number, "ended"), asdict(ended))
    reports = json.loads((_folder() / "reports").read_text())
    _report(number, f"{job}.ended", reply_to, ended, times=reports.get(f"{job} for {reply_to}", 1))


def _report(number: str, name: str, reply_to: int, ended: Ended, *, times: int) -> None:
    """Twice is the same message twice; the third time it is a message of its own."""
    from workflows.signals import store

    for n in range(times):
        store.send(
            source="job runner",
            dedupe_key=f"{number}/{n // 2}",
            name=name,
            workflow_id=reply_to,
            payload=asdict(ended),
        )


if __name__ == "__main__":
    main()
