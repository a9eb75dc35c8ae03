"""API KEYS that expire soon, or have expired and are still tried: their clients have to be told."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import cache
from typing import Any

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from workflows.models import ApiKey
from workflows.postgres import often

# Days before its end at which a key is told of, and told of as urgent; 0: it has expired, and its client is refused.
TOLD = SOON, VERY_SOON, EXPIRED = 30, 7, 0
# A key that nothing has used for so long is out of use: a day for the client that sends once a night, and the two
# hours by which its last use may be off.
IDLE = timedelta(days=1, hours=2)


def numbers(at: datetime) -> dict[int, int]:
    """The number of keys that are told of, by days. One statement."""
    ends = [end for (end,) in often.fetch_all(*_ends())]
    return {days: sum(end <= at + timedelta(days=days) for end in ends) for days in TOLD}


@cache
def _ends() -> tuple[str, tuple[Any, ...]]:
    sql, parameters = expiring(SOON).values_list("expires_at").query.sql_with_params()
    return sql, parameters


def expiring(days: int) -> QuerySet[ApiKey]:
    """The keys that expire within so many days and have no successor that replaces them, or are used although they do;
    and those that have expired and are still tried."""
    now = Now()
    same = {each: OuterRef(each) for each in ("name", "tenant", "types", "queues", "verbs", "may")}
    longer = Q(expires_at=None) | Q(expires_at__gt=OuterRef("expires_at"))
    of_whom = Q(person=None) | Q(person=OuterRef("person"))  # the same rights: both are a person's, or neither is
    replaced = Exists(ApiKey.objects.filter(longer, of_whom, pk__gt=OuterRef("pk"), revoked_at=None, **same))
    in_use = Q(last_used_at__gt=now - IDLE)
    soon = Q(expires_at__gt=now, expires_at__lte=now + timedelta(days=days)) & (in_use | ~replaced)
    tried = Q(expires_at__lte=now, last_used_at__gt=F("expires_at")) & in_use
    return ApiKey.objects.filter(soon | tried, revoked_at=None, expires_at__lte=now + timedelta(days=days)).order_by(
        "expires_at"
    )
