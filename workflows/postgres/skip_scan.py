"""The values of a column, each once, by as many steps down an index as there are values, however many rows there are.

PostgreSQL has no such plan of its own before release 18: https://wiki.postgresql.org/wiki/Loose_indexscan
"""

from __future__ import annotations


def skip_scan(name: str, column: str, table: str, condition: str) -> str:
    """A recursive part of a WITH clause, called `name`. Its last row is NULL.

    There has to be an index that begins with the column, of the rows for which the condition holds.
    """
    return f"""{name} AS (
                   (SELECT {column} FROM {table} WHERE {condition} ORDER BY {column} LIMIT 1)
                   UNION ALL
                   SELECT (SELECT {column} FROM {table} WHERE {condition} AND {column} > {name}.{column}
                            ORDER BY {column} LIMIT 1)
                     FROM {name} WHERE {name}.{column} IS NOT NULL)"""  # noqa: S608 (the names are ours)
