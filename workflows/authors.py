"""FOR AUTHORS, with DEBUG only: what a step does wrong is told, and its errors are shown as Python tells them.

Such a text may quote a patient, so no table has it: it goes to the worker's stderr, and to a file of this machine that
the page of the workflow reads.
"""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from pydantic import BaseModel

from workflows.errors import StepError

# The newest files are kept, and the end of each error.
FILES, CHARACTERS = 100, 20_000

_ENGINE = str(Path(__file__).parent)


def tell(key: str, attempt: int, step: str, error: BaseException) -> None:
    """Show the error whole, in the file of its attempt and on stderr; a StepError, which is expected, in a line."""
    if not settings.DEBUG:
        return
    says = f"workflow {key}, attempt {attempt}, {step}: {''.join(traceback.format_exception_only(error))}"
    whole = f"{step}\n{_as_python_tells(error)}\n"
    with suppress(OSError, ValueError):  # a full disk, a closed stderr: the decision is made all the same
        sys.stderr.write(says if isinstance(error, StepError) else f"{says}{whole}")
        file = _file(key, attempt)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        (file.parent / ".gitignore").write_text("*\n")
        with file.open("a", errors="backslashreplace") as opened:
            opened.write(whole)
        for old in sorted(file.parent.glob("*.txt"), key=lambda each: each.stat().st_mtime)[:-FILES]:
            old.unlink(missing_ok=True)


def told(key: str, attempt: int) -> str:
    """What `tell` wrote of an attempt; empty without DEBUG, and if a worker of another machine wrote it."""
    with suppress(OSError):
        return _file(key, attempt).read_text() if settings.DEBUG else ""
    return ""


def ensure_unchanged(step: str, given: tuple[Any, Any], seen: tuple[Any, BaseModel]) -> None:
    """Raise StepError if the step changed the payload or the context that it saw: no other attempt would see that.

    Called with DEBUG only.
    """
    try:
        is_unchanged = (seen[0], seen[1].model_dump(mode="json", warnings=False)) == given
    except ValueError:  # the change has no form in JSON
        is_unchanged = False
    if not is_unchanged:
        what = "the context" if seen[0] == given[0] else "workflow.payload"
        raise StepError(f"{step} changed {what}, and that is lost. Return a dict of what it found.")


def _file(key: str, attempt: int) -> Path:
    return Path(getattr(settings, "BASE_DIR", "."), "var", "errors", f"{key}-{attempt}.txt")


def _as_python_tells(error: BaseException) -> str:
    """The error with its causes, and its traceback from the author's first line on."""
    trace = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(_ENGINE):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))[-CHARACTERS:]
