"""Who cancels what has been charged."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_

PAID = "workflows/admin/test_cancelling_what_is_paid.py::"

MUTANTS: list[Mutant] = [
    *in_(
        "payments.py",
        (
            "a refund counts as a charge",
            " AND NOT e.undo",
            "",
            f"{PAID}test_a_refund_is_no_charge",
        ),
        (
            "a charge whose outcome is unclear does not count",
            "e.state IN ('intent', 'unknown')",
            "e.state IN ('intent')",
            f"{PAID}test_nor_what_may_have_been_charged[unknown]",
        ),
        (
            "a charge under way does not count",
            "e.state IN ('intent', 'unknown')",
            "e.state IN ('unknown')",
            f"{PAID}test_nor_what_may_have_been_charged[intent]",
        ),
        (
            "a charge that a person has left as it is does not count",
            "e.state IN ('done', 'kept')",
            "e.state IN ('done')",
            f"{PAID}test_support_does_not_cancel_what_has_been_charged[kept]",
        ),
        (
            "a call that charged nothing counts",
            "e.result ->> charge.reference <> ''",
            "charge.step IS NOT NULL",
            f"{PAID}test_support_cancels_what_has_charged_nothing[execute_checkout-done-result3]",
        ),
        (
            "an unclear call of any step counts as a charge",
            "(charge.step IS NOT NULL OR family",
            "(true OR family",
            f"{PAID}test_support_cancels_what_has_charged_nothing[create_account-unknown-result6]",
        ),
        (
            "what children have charged does not count",
            "child.parent_id = family.id AND",
            "child.parent_id = family.id AND false AND",
            f"{PAID}test_what_is_cancelled_with_it_counts",
        ),
        (
            "children that are complete count",
            " AND child.status = 'PENDING'",
            "",
            f"{PAID}test_what_is_cancelled_with_it_counts",
        ),
        (
            "of an unknown type what happened counts for nothing",
            "<> '' OR family.workflow_type <> ALL (%(known)s::text[]))",
            "<> '')",
            f"{PAID}test_of_a_type_that_nobody_knows_every_call_may_be_a_charge[done]",
        ),
        (
            "of an unknown type what is under way counts for nothing",
            "(charge.step IS NOT NULL OR family.workflow_type <> ALL (%(known)s::text[]))\n",
            "charge.step IS NOT NULL\n",
            f"{PAID}test_of_a_type_that_nobody_knows_every_call_may_be_a_charge[intent]",
        ),
    ),
    *in_(
        "operations/workflows.py",
        (
            "whoever may cancel cancels what has been charged, while no worker has it",
            "(workflow, state)\n        _require_may_cancel(workflow_id, user)\n",
            "(workflow, state)\n",
            f"{PAID}test_support_does_not_cancel_what_has_been_charged[done]",
        ),
        (
            "whoever may cancel has a worker cancel what has been charged",
            "State(workflow.state))\n        _require_may_cancel(workflow_id, user)\n",
            "State(workflow.state))\n",
            f"{PAID}test_a_running_one_is_refused_all_the_same",
        ),
    ),
    *in_(
        "admin/base.py",
        (
            "what a user may not do to a row is offered",
            " if verb not in barred]",
            "]",
            f"{PAID}test_the_page_offers_no_cancel_and_says_why",
        ),
    ),
]
