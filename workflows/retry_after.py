"""RETRY-AFTER of an answer, a number of seconds or a date (RFC 9110, 10.2.3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.message import Message
from time import time

from django.utils.http import parse_http_date_safe


def seconds(headers: Mapping[str, str] | Message) -> float | None:
    """The seconds that an answer asks to wait, or None if it does not. `headers` ignores case.

    A date counts from the answer's own `Date`, so that two clocks need not agree, and from now where there is none.
    """
    asked = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", asked):
        return float(asked)
    date, sent = (parse_http_date_safe(each) for each in (asked, headers.get("Date", "")))
    return None if date is None else max(0.0, date - (time() if sent is None else sent))
