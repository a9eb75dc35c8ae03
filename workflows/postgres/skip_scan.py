"""Reads the distinct values of some columns in as many steps down an index as there are values, whatever the rows.

PostgreSQL has no such plan of its own before release 18: https://wiki.postgresql.org/wiki/Loose_indexscan
"""

from __future__ import annotations


def skip_scan(name: str, table: str, condition: str, *columns: str, downward: bool = False) -> str:
    """A recursive part of a WITH clause, called `name`, with one row for each combination of the columns' values.

    Needs an index that starts with the columns, over the rows that meet the condition. `downward`: the greatest first.
    """
    behind, order = ("<", " DESC") if downward else (">", "")
    ordered = ", ".join(f"{column}{order}" for column in columns)
    these, before = ", ".join(columns), ", ".join(f"{name}.{column}" for column in columns)
    return f"""{name} AS (
                   (SELECT {these} FROM {table} WHERE {condition} ORDER BY {ordered} LIMIT 1)
                   UNION ALL
                   SELECT later.* FROM {name} CROSS JOIN LATERAL (
                       SELECT {these} FROM {table} WHERE {condition} AND ({these}) {behind} ({before})
                        ORDER BY {ordered} LIMIT 1) later)"""  # noqa: S608 (the names are ours)
