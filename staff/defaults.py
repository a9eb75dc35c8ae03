"""DEFAULTS of the settings that this package reads, and of those by which django-axes finds its functions here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

DEFAULTS: dict[str, Any] = {
    "SIGN_INS_KEPT_DAYS": 365,
    "CLIENT_ADDRESS_HEADER": "",
    "SESSION_IDLE_SECONDS": 15 * 60,
    "SESSION_WARNING_SECONDS": 2 * 60,
    # An account is refused after so many failures, an address after four times as many, for so long after the last one
    # that counted. A refused try is not counted: the pause does not grow.
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
    # For these fields of a failed sign-in only their names are kept: people type passwords there.
    "AXES_SENSITIVE_PARAMETERS": ["username", "csrfmiddlewaretoken"],
    "AXES_VERBOSE": False,
    "AXES_ENABLE_ADMIN": False,
    "AXES_ENABLE_ACCESS_FAILURE_LOG": True,
}
