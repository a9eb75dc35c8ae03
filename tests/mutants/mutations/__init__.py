"""The list of mutants: what is taken away, where, and the tests that should see it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations import (
    claim,
    doubts,
    effect_rows,
    execution,
    follow_ups,
    inbox,
    journal,
    ledger,
    lost,
    onboarding,
    operations,
    outages,
    questions,
    search_keys,
    services,
    sessions,
    staff,
    transitions,
    verdict,
    waits,
    waking,
    worker,
)

MUTANTS: list[Mutant] = [
    *journal.MUTANTS,
    *ledger.MUTANTS,
    *doubts.MUTANTS,
    *effect_rows.MUTANTS,
    *waits.MUTANTS,
    *inbox.MUTANTS,
    *waking.MUTANTS,
    *transitions.MUTANTS,
    *execution.MUTANTS,
    *claim.MUTANTS,
    *worker.MUTANTS,
    *sessions.MUTANTS,
    *operations.MUTANTS,
    *outages.MUTANTS,
    *follow_ups.MUTANTS,
    *questions.MUTANTS,
    *services.MUTANTS,
    *search_keys.MUTANTS,
    *lost.MUTANTS,
    *onboarding.MUTANTS,
    *staff.MUTANTS,
    *verdict.MUTANTS,
]
