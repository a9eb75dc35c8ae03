"""DEFAULTS for this package's settings, and for those by which django-axes and django-allauth find its functions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

DEFAULTS: dict[str, Any] = {
    # Single sign-on (single_sign_on.py): without an issuer people sign in by passwords.
    "OIDC_ISSUER": "",
    "OIDC_CLIENT_ID": "",
    "OIDC_CLIENT_SECRET": "",
    "OIDC_SCOPES": ["openid", "profile", "email"],
    "OIDC_GROUPS": {},
    "OIDC_BREAK_GLASS": [],
    "SOCIALACCOUNT_ADAPTER": "staff.single_sign_on.Adapter",
    # The second factor (second_factor.py).
    "SECOND_FACTOR_REQUIRED": True,
    "ACCOUNT_ADAPTER": "staff.accounts.AccountAdapter",
    "MFA_ADAPTER": "staff.second_factor.FactorAdapter",
    # Of allauth's limits only this one, by user: an office shares an address. As many as AXES_FAILURE_LIMIT, for as
    # long.
    "ACCOUNT_RATE_LIMITS": {"login_failed": "5/900s/key"},
    "ACCOUNT_EMAIL_VERIFICATION": "none",
    "ACCOUNT_EMAIL_NOTIFICATIONS": False,
    "MFA_SUPPORTED_TYPES": ["totp", "webauthn", "recovery_codes"],
    # The code of the half minute before and after counts, too: phones are some seconds off, and people type.
    "MFA_TOTP_TOLERANCE": 1,
    "MFA_TOTP_ISSUER": "Onramp",
    "SIGN_INS_KEPT_DAYS": 365,
    "CLIENT_ADDRESS_HEADER": "",
    "SESSION_IDLE_SECONDS": 15 * 60,
    "SESSION_WARNING_SECONDS": 2 * 60,
    # An account is refused after so many failures, an address after four times as many, for so long after the last one
    # that counted. A refused try does not count, so the pause does not grow.
    "AXES_FAILURE_LIMIT": 5,
    "AXES_COOLOFF_TIME": timedelta(minutes=15),
    "AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT": False,
    "AXES_RESET_ON_SUCCESS": True,
    "AXES_HANDLER": "staff.sign_in.Throttle",
    "AXES_LOCKOUT_PARAMETERS": "staff.sign_in.counted_by",
    "AXES_LOCKOUT_CALLABLE": "staff.sign_in.refuse",
    "AXES_USERNAME_CALLABLE": "staff.sign_in.name_of",
    "AXES_CLIENT_IP_CALLABLE": "staff.sign_in.address_of",
    "AXES_CLIENT_STR_CALLABLE": "staff.sign_in.described",
    # Only the names of these fields of a failed sign-in are stored, because people type passwords there.
    "AXES_SENSITIVE_PARAMETERS": ["username", "csrfmiddlewaretoken"],
    "AXES_VERBOSE": False,
    "AXES_ENABLE_ADMIN": False,
    "AXES_ENABLE_ACCESS_FAILURE_LOG": True,
}
