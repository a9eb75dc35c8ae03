"""AMOUNTS: what is charged, as people read it; the payload says how much, and in which currency."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from workflows.definition import definitions, value_at
from workflows.postgres.statements import fetch_all
from workflows.wording import Money

# ISO 4217: the signs that need no explanation here, and currencies without a smaller unit.
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
WHOLE_UNITS = frozenset({"CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF"})


def amount(payload: Mapping[str, Any], money: Money) -> str:
    """The amount with its currency, `$145.00`, or `1,200 JPY`; "An amount" where the payload does not say it."""
    return _total([(value_at(payload, money.amount), value_at(payload, money.currency), 1)])


def total(ids: Collection[int]) -> str:
    """The sum of what these workflows charge, or have charged, by currency: `$290.00 and 1,200 JPY`."""
    charging = {name: each.wording.money for name, each in definitions().items() if each.wording.money}
    return _total(
        (json.loads(units or "null"), json.loads(currency or "null"), number)
        for name, money in charging.items()
        for units, currency, number in fetch_all(
            """SELECT payload #> %(amount)s, payload #> %(currency)s, count(*) FROM workflows_workflow
                WHERE id = ANY (%(ids)s) AND workflow_type = %(name)s GROUP BY 1, 2 ORDER BY min(id)""",
            {"amount": money.amount.split("."), "currency": money.currency.split("."), "ids": list(ids), "name": name},
        )
    )


def _total(charges: Iterable[tuple[Any, Any, int]]) -> str:
    """The sum of amounts with their currency, each so many times."""
    sums: Counter[str] = Counter()
    says_all = True
    for units, currency, number in charges:
        if isinstance(units, int) and not isinstance(units, bool) and isinstance(currency, str):
            sums[currency.upper() if currency.isalpha() and len(currency) == 3 else ""] += units * number
        else:
            says_all = False
    parts = [shown(units, currency) for currency, units in sums.items()]
    return " and ".join(parts if says_all else [*parts, "more"]) if parts else "An amount"


def shown(units: int, currency: str) -> str:
    """An amount in the currency's smallest unit, as people read it; `currency` is its code, or empty."""
    number = f"{units:,}" if currency in WHOLE_UNITS else f"{units / 100:,.2f}"
    return f"{SIGNS[currency]}{number}" if currency in SIGNS else f"{number} {currency}".strip()
