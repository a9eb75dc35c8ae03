"""AMOUNTS: what is charged, as people read it; the payload says how much, and in which currency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from workflows.definition import value_at
from workflows.wording import Money

# ISO 4217: the signs that need no explanation here, and currencies without a smaller unit.
SIGNS = {"USD": "$", "EUR": "€", "GBP": "£"}
WHOLE_UNITS = frozenset({"CLP", "ISK", "JPY", "KRW", "PYG", "UGX", "VND", "XAF", "XOF", "XPF"})


def amount(payload: Mapping[str, Any], money: Money) -> str:
    """The amount with its currency, `$145.00`, or `1,200 JPY`; "An amount" where the payload does not say it."""
    return total([(payload, money)])


def total(charges: Iterable[tuple[Mapping[str, Any], Money]]) -> str:
    """The sum of the amounts of several payloads, by currency: `$290.00 and 1,200 JPY`."""
    sums: Counter[str] = Counter()
    says_all = True
    for payload, money in charges:
        units, currency = value_at(payload, money.amount), value_at(payload, money.currency)
        if isinstance(units, int) and not isinstance(units, bool) and isinstance(currency, str):
            sums[currency.upper() if currency.isalpha() and len(currency) == 3 else ""] += units
        else:
            says_all = False
    parts = [shown(units, currency) for currency, units in sums.items()]
    return " and ".join(parts if says_all else [*parts, "more"]) if parts else "An amount"


def shown(units: int, currency: str) -> str:
    """An amount in the currency's smallest unit, as people read it; `currency` is its code, or empty."""
    number = f"{units:,}" if currency in WHOLE_UNITS else f"{units / 100:,.2f}"
    return f"{SIGNS[currency]}{number}" if currency in SIGNS else f"{number} {currency}".strip()
