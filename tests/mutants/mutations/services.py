"""What people may do with a service, and what the console says of it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.mutations.lines import in_
from tests.mutants.mutations.seen_by import SERVICE_PAGES, SERVICES, SUSPICIONS, WALK

MUTANTS: list[Mutant] = [
    *in_(
        "operations/services.py",
        (
            "everybody may hold a service",
            "    require(user, HOLD)\n",
            "",
            f"{SERVICES}test_each_needs_its_own_permission",
        ),
        (
            "who may hold a service may have it tried",
            "require(user, TRY_NOW)",
            "require(user, HOLD)",
            f"{SERVICES}test_each_needs_its_own_permission",
        ),
        (
            "a hold needs no reason",
            '    _require_reason(reason, "a hold")\n',
            "",
            f"{SERVICES}test_each_needs_a_reason",
        ),
        (
            "a trial needs no reason",
            '    _require_reason(reason, "a trial")\n',
            "",
            f"{SERVICES}test_each_needs_a_reason",
        ),
        (
            "a service is held until a time that is over",
            "if until <= now:",
            "if False:",
            f"{SERVICES}test_a_hold_has_an_end_that_is_to_come_and_not_far_away",
        ),
        (
            "a service is held for ever",
            "if until > now + LONGEST_HOLD:",
            "if False:",
            f"{SERVICES}test_a_hold_has_an_end_that_is_to_come_and_not_far_away",
        ),
        (
            "what is closed is tried",
            "        if service.opened_at is None:\n",
            "        if False:\n",
            f"{SERVICES}test_what_is_not_open_is_not_tried",
        ),
        (
            "a trial that is due is put off by whoever asks for it",
            "        if circuits.is_trial_due(service):\n",
            "        if False:\n",
            f"{SERVICES}test_what_is_to_be_tried_already_is_not_told_so_again",
        ),
        (
            "a slip of the pen makes a service",
            "    if not _is_known(name):\n",
            "    if False:\n",
            f"{SERVICES}test_no_service_is_made_by_a_name_that_nothing_knows",
        ),
        (
            "a service that has no row is not known, though workflows are parked on it",
            ".exists() or parked.exists()",
            ".exists()",
            f"{SERVICES}test_a_service_on_which_workflows_are_parked_is_held_though_it_has_no_row",
        ),
        (
            "a service is known by what was parked on it once",
            "Workflow.objects.filter(status=Workflow.Status.PENDING, parked_on=name)",
            "Workflow.objects.filter(parked_on=name)",
            f"{SERVICES}test_no_service_is_made_by_a_name_that_nothing_knows",
        ),
        (
            "an operation on a service does not wait for its row",
            "circuits.locked(name, wait=True)",
            "circuits.locked(name)",
            f"{SERVICES}test_a_row_that_another_session_keeps_is_waited_for_and_not_for_long",
        ),
    ),
    *in_(
        "admin/service.py",
        (
            "the page of a hold is for who may have it tried",
            "permission=operations.HOLD",
            "permission=operations.TRY_NOW",
            f"{SERVICE_PAGES}test_a_button_is_for_who_has_its_own_permission",
        ),
        (
            "the page of a trial is for who may hold it",
            "permission=operations.TRY_NOW",
            "permission=operations.HOLD",
            f"{SERVICE_PAGES}test_a_button_is_for_who_has_its_own_permission",
        ),
        (
            "everybody sees the services",
            "        if not self.has_view_permission(request):\n",
            "        if False:\n",
            f"{SERVICE_PAGES}test_who_may_not_see_services_sees_none",
        ),
    ),
    *in_(
        "console.py",
        (
            "everybody sees the services on home",
            'services if request.user.has_perm("workflows.view_service") else []',
            "services",
            f"{SERVICE_PAGES}test_who_may_not_see_services_sees_none",
        ),
    ),
    *in_(
        "migrations/0038_groups_see_services.py",
        (
            "support may hold a service",
            '"support": ["view_service"]',
            '"support": ["view_service", "hold_service"]',
            f"{WALK}test_everybody_gets_what_the_table_says",
        ),
    ),
    *in_(
        "overview.py",
        (
            "what is parked on a service is counted to the end",
            "ORDER BY invisible_until, id LIMIT %s) next) parked",
            "ORDER BY invisible_until, id LIMIT %s + 10000) next) parked",
            f"{SERVICE_PAGES}test_a_count_of_what_is_parked_stops_at_its_limit",
        ),
    ),
    *in_(
        "outages/circuits.py",
        (
            "a suspicion that is over is shown until the next call",
            """    if service.since is None or _is_old(service):
        return False
""",
            """    if service.since is None:
        return False
""",
            f"{SUSPICIONS}test_a_suspicion_is_shown_while_it_is_recent",
        ),
        (
            "a suspicion that nobody renews is shown for ever",
            "return max(service.since, service.failed_at or service.since) > _now(service) - RECENT",
            "return True",
            f"{SUSPICIONS}test_a_suspicion_is_shown_while_it_is_recent",
            f"{SUSPICIONS}test_what_a_call_renews_is_shown_again",
        ),
        (
            "a suspicion that calls renew is shown for ten minutes only",
            "return max(service.since, service.failed_at or service.since) > _now(service) - RECENT",
            "return service.since > _now(service) - RECENT",
            f"{SUSPICIONS}test_a_suspicion_is_shown_while_it_is_recent",
        ),
    ),
]
