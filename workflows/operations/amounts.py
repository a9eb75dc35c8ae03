"""AMOUNTS: charges as people read them. The payload has the amount and its currency."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from workflows.definition import definitions, value_at
from workflows.postgres.statements import fetch_all
from workflows.wording import Money

UNKNOWN = "An amount"
# ISO 4217: the familiar signs, and the currencies without a smaller unit.
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
WHOLE_UNITS = frozenset({"CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF"})


def amount(payload: Mapping[str, Any], money: Money, charges: int = 1) -> str:
    """The sum of so many charges, with its currency: `$145.00`; "An amount" if the payload lacks it."""
    return known(value_at(payload, money.amount), value_at(payload, money.currency), charges) or UNKNOWN


def known(units: Any, currency: Any, charges: int = 1) -> str:
    """The sum, from the payload's two values; empty if they are missing or invalid."""
    return _sum([(units, currency, charges)])[0]


def total(charges: Mapping[int, int]) -> str:
    """The sum of so many charges of each of these workflows, by currency: `$290.00 and 1,200 JPY`."""
    found = [
        (json.loads(units or "null"), json.loads(currency or "null"), number)
        for name, each in definitions().items()
        if (money := each.wording.money)
        for units, currency, number in fetch_all(
            """SELECT payload #> %(amount)s, payload #> %(currency)s, sum(number)::bigint
                 FROM workflows_workflow JOIN unnest(%(ids)s::bigint[], %(numbers)s::bigint[]) charged (id, number)
                USING (id) WHERE workflow_type = %(name)s GROUP BY 1, 2 ORDER BY min(id)""",
            {
                "amount": money.amount.split("."),
                "currency": money.currency.split("."),
                "ids": list(charges),
                "numbers": list(charges.values()),
                "name": name,
            },
        )
    ]
    told, says_all = _sum(found)
    says_all &= sum(number for *_, number in found) == sum(charges.values())  # False if a type is unknown here
    return (told if says_all else f"{told} and more") if told else UNKNOWN


def _sum(charges: Iterable[tuple[Any, Any, int]]) -> tuple[str, bool]:
    """The sum of amounts, each so many times, with currencies; and whether it is complete. Empty for none."""
    sums: Counter[str] = Counter()
    says_all = True
    for units, currency, number in charges:
        if isinstance(units, int) and not isinstance(units, bool) and isinstance(currency, str):
            sums[currency.upper() if currency.isalpha() and len(currency) == 3 else ""] += units * number
        else:
            says_all = False
    return " and ".join(shown(units, currency) for currency, units in sums.items()), says_all


def shown(units: int, currency: str) -> str:
    """An amount in the currency's smallest unit, as people read it. `currency` is its code, or empty."""
    number = f"{units:,}" if currency in WHOLE_UNITS else f"{units / 100:,.2f}"
    return f"{SIGNS[currency]}{number}" if currency in SIGNS else f"{number} {currency}".strip()
