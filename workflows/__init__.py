"""The engine, and its console. docs/architecture.md says how it works, docs/writing-workflows.md how to use it.

The path of a workflow, and where each part of it is:

| | |
|---|---|
| enters | `submissions.enter`, called by `api/`; in the intake with all that has arrived meanwhile, by `intake/` |
| is claimed | `worker/claim.py`, in the loop of `worker/loop.py` |
| runs, step by step | `executor.run` |
| calls something else once | `ledger.Ledger.perform`; `doubts.py` finds out about a call whose answer never came |
| waits | `waits/`; whatever can wake it is in `inbox.py`, and wakes it by `waking.py` |
| succeeds, fails, is tried again | `decisions.decide`, by way of `transitions.py` |
| is undone | `compensation.run` |
| kills its workers | `poison.judge` |
| needs somebody | `needs_a_person.py` |
| is retried, cancelled, approved, acknowledged | `operations/`, called by `admin/` |

What the author of a workflow imports:

| from | |
|---|---|
| `workflows.definition` | `WorkflowDefinition`, `Step`, `Retry` |
| `workflows.errors` | `StepError`, `RetryableStepError`, `UnknownOutcome` |
| `workflows.effects` | `key_for`, `KnownEffect` |
| `workflows.waits` | `require_approval`, `wait_for_signal`, `wait_for_time`, `wait_for_children` |
| `workflows.models` | `Workflow` |
| `workflows.testing` | in tests |
"""
