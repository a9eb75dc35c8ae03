"""Finds steps that may have made a call twice, and remembers what became of each call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any

from workflows import effects
from workflows.definition import Step, WorkflowDefinition, WorkflowStep
from workflows.effects import ledger
from workflows.models import Attempt, Workflow


class Keys:
    """Records which runs of steps asked for an idempotency key. `repeatable` steps are not watched.

    Such a run may have made its call, whatever its outcome. A thread that a step starts counts for the running step.

    `happened` and `unclear` are by the key of a `once` step's call: its result, and why nobody knows of it. A call that
    is in neither was not made.
    """

    def __init__(self) -> None:
        self.runs = count()
        self.running: dict[int, tuple[str, str, int, int]] = {}  # workflow -> definition, step, workflow, run
        self.asked: set[tuple[str, str, int, int]] = set()
        self.happened: dict[str, Mapping[str, Any]] = {}
        self.unclear: dict[str, str] = {}

    def counted(self, definition: WorkflowDefinition) -> WorkflowDefinition:
        """The definition with every step watched that is not `repeatable`."""
        counted = copy(definition)
        counted.steps = tuple(
            step if step.repeatable else replace(step, function=self._counted_function(definition, step))
            for step in definition.steps
        )
        return counted

    def _counted_function(self, definition: WorkflowDefinition, step: Step) -> WorkflowStep:
        def function(*, workflow: Workflow, context: Any) -> Mapping[str, Any] | None:
            self.running[workflow.pk] = (definition.name, step.name, workflow.pk, next(self.runs))
            try:
                return self._remembered(step, workflow, context)
            finally:
                del self.running[workflow.pk]

        function.__name__ = step.name
        return function

    def _remembered(self, step: Step, workflow: Workflow, context: Any) -> Mapping[str, Any] | None:
        in_use = effects.keys_in_use.get(workflow.pk)
        try:
            result = step.function(workflow=workflow, context=context)
            if in_use and result is not None:
                self.happened[in_use.key] = result
            elif in_use and in_use.requested:
                self.unclear[in_use.key] = "returned None after it had asked for its idempotency key"
        except BaseException as error:
            if in_use and not ledger.says_that_nothing_happened(error, repeats_a_doubt=False):
                self.unclear[in_use.key] = f"raised {type(error).__name__} ({error})"
            raise
        return result

    @contextmanager
    def asked_for(self) -> Iterator[None]:
        """Note each request for a key."""
        effects.key_requested_outside_once = self._note
        try:
            yield
        finally:
            effects.key_requested_outside_once = None

    def _note(self, workflow: Workflow) -> None:
        if running := self.running.get(workflow.pk):
            self.asked.add(running)

    def check(self, queue: str) -> None:
        """Raise AssertionError, naming each step of a workflow that may have repeated its call, or repeats it."""
        times = Counter((definition, step, workflow) for definition, step, workflow, _ in self.asked)
        repeated = [
            f"The step {step} of {definition} ran {ran} times and asked for its idempotency key each time, so its call "
            f"may have been made {ran} times. Make it Step({step}, once=True, ...); or say that its call does no harm "
            f"whenever it comes again: Step({step}, repeatable=True)."
            for (definition, step, _), ran in sorted(times.items())
            if ran > 1
        ]
        returned_none = [
            f"The step {step} of {definition} is once, asked for its idempotency key and returned None, which says "
            f"that it did not apply: whether it made its call is not known, and a person is asked. Let it return {{}} "
            f"when it has called and has nothing to return."
            for definition, step in sorted(_steps_that_returned_none(queue))
        ]
        faults = repeated + returned_none
        assert not faults, "\n".join(faults)


def _steps_that_returned_none(queue: str) -> set[tuple[str, str]]:
    """The definition and the name of each `once` step that asked for its key and returned None."""
    recorded = {"error_code": ledger.NONE_AFTER_KEY}
    attempts = Attempt.objects.filter(workflow__queue=queue, steps_in_full__contains=[recorded])
    return {
        (definition, entry["step"])
        for definition, steps in attempts.values_list("workflow__workflow_type", "steps_in_full")
        for entry in steps
        if recorded.items() <= entry.items()
    }
