"""The table of docs/data.md: every column of the database, and whether it has a person's data."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from django.conf import settings


class Columns(NamedTuple):
    """Of one table: those with a person's data, those that tell of a person, and the others."""

    in_clear: frozenset[str]
    told: frozenset[str]
    others: frozenset[str]


@cache
def documented() -> dict[str, Columns]:
    """What the page says of each table. No column is named twice."""
    found = {}
    for line in (Path(settings.BASE_DIR) / "docs/data.md").read_text().splitlines():
        if named := re.match(r"\| `(\w+)` \|([^|]*)\|([^|]*)\|([^|]*)\|[^|]+\|[^|]+\|$", line):
            groups = [re.findall(r"`(\w+)`", text) for text in named.groups()[1:]]
            columns = Columns(*map(frozenset, groups))
            assert sum(map(len, groups)) == len(columns.in_clear | columns.told | columns.others), named[1]
            found[named[1]] = columns
    return found
