"""Onboarding: whose account it is, and what an attempt that comes hours later must not do again."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

END_TO_END = "tests/onboarding/test_end_to_end.py::"
COMPENSATION = "tests/onboarding/test_compensation.py::"
ACCOUNT = "tests/onboarding/steps/test_account.py::"

LOGINS = "tests/onboarding/test_demo_logins.py::"
SCENES = "tests/onboarding/test_demo_scenes.py::"

MUTANTS: list[Mutant] = [
    Mutant(
        "an e-mail address opens somebody else's account",
        "onboarding/steps/account.py",
        ".patient_uuid != account.patient_uuid:",
        ".patient_uuid is None:",
        (f"{ACCOUNT}test_a_session_of_another_patient_opens_nothing",),
    ),
    Mutant(
        "the session is checked by each attempt",
        "onboarding/workflow.py",
        'Step(look_up_account, once=True, lookup=find_looked_up_account, settle=0, returns=("patient_uuid",))',
        "Step(look_up_account)",
        (f"{END_TO_END}test_an_attempt_hours_later_does_not_need_the_session_of_the_patient",),
    ),
    Mutant(
        "the bill is set by each attempt",
        "onboarding/workflow.py",
        "Step(configure_billing, once=True, key_ttl=KEY_TTL, returns=())",
        "Step(configure_billing, repeatable=True)",
        (f"{END_TO_END}test_an_attempt_hours_later_leaves_the_bill_as_it_was_changed_meanwhile",),
    ),
    Mutant(
        "a death in the check of the session costs half a minute",
        "onboarding/workflow.py",
        "lookup=find_looked_up_account, settle=0,",
        "lookup=find_looked_up_account,",
        (f"{COMPENSATION}test_a_death_while_the_session_is_checked_asks_nobody_and_waits_for_nothing",),
    ),
    Mutant(
        "a person is asked whether a check of the session has happened that had none to make",
        "onboarding/workflow.py",
        "lookup=find_looked_up_account, settle=0,",
        "key_ttl=KEY_TTL, settle=0,",
        (f"{COMPENSATION}test_a_death_while_the_session_is_checked_asks_nobody_and_waits_for_nothing",),
    ),
    Mutant(
        "verifications that hang are outvoted by the policies that are saved",
        "onboarding/services/http.py",
        "call_to(self.circuit or self.name)",
        "call_to(self.name)",
        (f"{END_TO_END}test_what_nobody_waits_for_is_in_an_outage_alone_where_the_rest_of_its_service_matters",),
    ),
    Mutant(
        "the demo makes logins on a real deployment",
        "onboarding/demo/logins.py",
        "if not settings.DEBUG:",
        "if False:",
        (f"{LOGINS}test_without_debug_there_are_no_logins",),
    ),
    Mutant(
        "a login of the demo keeps what else it was given",
        "onboarding/demo/logins.py",
        "        user.user_permissions.clear()\n",
        "",
        (f"{LOGINS}test_a_second_demo_makes_new_passwords_and_takes_back_what_a_login_was_given",),
    ),
    Mutant(
        "the demo crashes workers that are not its own",
        "onboarding/demo/play.py",
        "if os.getsid(process.pid) in workers:",
        "if process.pid:",
        (f"{SCENES}test_no_other_process_is_ended",),
    ),
    Mutant(
        "the demo crashes a process that has the number of another host's worker",
        "onboarding/demo/play.py",
        ", host=socket.gethostname()",
        "",
        (f"{SCENES}test_no_other_process_is_ended",),
    ),
]
