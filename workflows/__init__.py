"""The engine, and its console. docs/architecture.md says how it works, docs/index.md how to use it.

The path of a workflow, and where each part of it is:

| | |
|---|---|
| enters | `intake/submissions.py`, called by `api/`; in the intake, `intake/batching.py` |
| is claimed | `engine/claim.py`, in the loop of `engine/loop.py` |
| runs, step by step | `engine/executor.py` |
| calls something else once | `effects/ledger.py`; `effects/reconcile.py` reconciles a call in doubt |
| meets a feature | `engine/extension.py`; each has a room in `features/` |
| waits | `waits/`; `signals/store.py` keeps what can wake it, and `signals/waking.py` wakes it |
| succeeds, fails, is tried again | `engine/decide.py`, by way of `state/transitions.py` |
| is undone | `engine/compensation.py` |
| kills its workers | `engine/poison.py` |
| is lost by its worker | `engine/in_hand.py` |
| needs somebody | `health/needs_a_person.py` |
| is retried, cancelled, approved, acknowledged | `operations/`, called by `console/` |

The author of a workflow imports from `workflows.definition`, `workflows.errors`, `workflows.effects`, `workflows.waits`
and `workflows.models`; a test from `workflows.testing`.
"""

# By this `apps` knows that the package is ours: another distribution has one of the same name.
DISTRIBUTION = "django-onramp"
