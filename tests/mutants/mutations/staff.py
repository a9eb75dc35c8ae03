"""The throttle of sign-ins, the ends of sessions, and who may administer whom."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

THROTTLE = "tests/staff/test_throttle.py::"
RECORDS = "tests/staff/test_records.py::"
SESSIONS = "tests/staff/test_sessions.py::"
ESCALATION = "tests/staff/test_escalation.py::"
EVERY_POST = f"{ESCALATION}test_every_post_there_is_ends_with_no_right_more"

MUTANTS: list[Mutant] = [
    Mutant(
        "an open session lets anybody guess at its password",
        "staff/sign_in.py",
        "if authenticate(self.request, username=self.user.get_username(), password=old_password) is None:",
        "if not self.user.check_password(old_password):",
        (f"{THROTTLE}test_an_open_session_does_not_let_anybody_guess_at_its_password",),
    ),
    Mutant(
        "an address may guess at as many accounts as it likes",
        "staff/sign_in.py",
        "max(account, address // FAILURES_OF_ADDRESS)",
        "account",
        (f"{THROTTLE}test_forty_accounts_from_one_address_cost_twenty_hashes",),
    ),
    Mutant(
        "an account may be guessed at from as many addresses as one likes",
        "staff/sign_in.py",
        '["username", "ip_address"] if address and known else "username"',
        '["username", "ip_address"]',
        (f"{THROTTLE}test_forty_wrong_passwords_from_forty_addresses_cost_five_hashes",),
    ),
    Mutant(
        "whoever guesses at an account locks out its owner",
        "staff/sign_in.py",
        "if address and known else",
        "if False else",
        (f"{THROTTLE}test_whoever_locks_an_account_does_not_lock_out_its_owner_at_a_known_address",),
    ),
    Mutant(
        "an account of one's own forgets what one guessed at others",
        "staff/sign_in.py",
        "AccessAttempt.objects.filter(username=name_of(request, credentials), ip_address=address_of(request))",
        "AccessAttempt.objects.filter(ip_address=address_of(request))",
        (f"{THROTTLE}test_an_account_of_ones_own_does_not_begin_the_count_of_an_address_anew",),
    ),
    Mutant(
        "what is refused makes the pause longer",
        "config/settings.py",
        "AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False",
        "AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = True",
        (f"{THROTTLE}test_what_is_refused_does_not_make_the_pause_longer",),
    ),
    Mutant(
        "what a client puts into the header is its address",
        "staff/sign_in.py",
        'told.rpartition(",")[2]',
        'told.partition(",")[0]',
        (f"{THROTTLE}test_behind_a_proxy_its_header_tells_the_address",),
    ),
    Mutant(
        "what was typed for a user name is kept",
        "staff/sign_in.py",
        "    if User.objects.filter(username=typed).exists():\n        return typed\n",
        "    return typed\n",
        (f"{RECORDS}test_no_password_is_kept_nor_what_was_typed_for_a_user_name_that_is_none",),
    ),
    Mutant(
        "the refresh of a page keeps its session alive",
        "staff/sessions.py",
        "        if not _is_background(request):\n            _note",
        "        if True:\n            _note",
        (f"{SESSIONS}test_what_a_page_asks_for_by_itself_is_no_activity",),
    ),
    Mutant(
        "a form of a session that is over is taken",
        "staff/sessions.py",
        "        if why := _over(request.session):\n",
        '        if request.method == "GET" and (why := _over(request.session)):\n',
        (f"{SESSIONS}test_a_form_of_an_ended_session_does_nothing_and_leads_back_to_its_page",),
    ),
    Mutant(
        "the password of a user with more permissions can be set",
        "staff/rights.py",
        '        and not permissions_of(user).exclude(pk__in=permissions_of(who).values("pk")).exists()\n',
        "",
        (EVERY_POST,),
    ),
    Mutant(
        "the password of a user in another team can be set",
        "staff/rights.py",
        '        and not user.groups.exclude(pk__in=groups_of(who).values("pk")).exists()\n',
        "",
        (EVERY_POST,),
    ),
    Mutant(
        "a team that one is not in can be changed",
        "staff/rights.py",
        "return groups_of(who).filter(pk=group.pk).exists()",
        "return True",
        (EVERY_POST,),
    ),
    Mutant(
        "the right password of a user without the console is a guess that does not count",
        "staff/sign_in.py",
        "            user_login_failed.send(sender=__name__, credentials=credentials, request=self.request)\n",
        "",
        (f"{THROTTLE}test_the_right_password_of_a_user_without_the_console_counts_like_a_wrong_one",),
    ),
    Mutant(
        "superusers are seen",
        "staff/admin.py",
        "return users if _user(request).is_superuser else users.filter(is_superuser=False)",
        "return users",
        (f"{ESCALATION}test_superusers_are_not_seen",),
    ),
    Mutant(
        "a permission that one lacks can be given",
        "staff/admin.py",
        'kwargs["queryset"] = permissions_of(_user(request)).select_related("content_type")',
        "pass",
        (EVERY_POST,),
    ),
    Mutant(
        "a group that one is not in can be given",
        "staff/admin.py",
        'kwargs["queryset"] = groups_of(_user(request))',
        "pass",
        (EVERY_POST,),
    ),
    Mutant(
        "a group becomes another team by its name",
        "staff/admin.py",
        'return ["name"] if obj and not _user(request).is_superuser else []',
        "return []",
        (f"{ESCALATION}test_the_name_of_a_group_is_for_superusers_to_change",),
    ),
    Mutant(
        "whoever changes users makes superusers",
        "staff/admin.py",
        '[field for field in options["fields"] if field not in hidden]',
        'options["fields"]',
        (EVERY_POST,),
    ),
    Mutant(
        "whoever has acted is deleted with the record of it",
        "staff/rights.py",
        "return who.is_superuser or user.last_login is None",
        "return True",
        (f"{ESCALATION}test_whoever_has_signed_in_is_neither_deleted_nor_renamed",),
    ),
    Mutant(
        "a session's key is whatever a cookie holds",
        "staff/session_store.py",
        " and key.isalnum()",
        "",
        (f"{SESSIONS}test_a_key_that_no_session_can_have_is_nobodys",),
    ),
]
