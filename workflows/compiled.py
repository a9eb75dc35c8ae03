"""A condition that is always the same, as SQL that is built once in a process: Django takes longer than PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.db.models import BooleanField, Expression, F, Model, Q

if TYPE_CHECKING:
    from django.db.models import Exists

Built = Callable[[], "Q | Exists"]

# The names that Django gives to the tables of subqueries. Ours differ: a condition may stand within such a subquery.
_INNER = re.compile(r"\b[T-Z]\d+\b")


class Compiled(Expression):
    """What `build` returns: a condition on the columns of a row. `build` is a function that lives on."""

    conditional = True

    def __init__(self, build: Built) -> None:
        super().__init__(output_field=BooleanField())
        self.build, self.row = build, F("pk")

    def get_source_expressions(self) -> list[Any]:
        return [self.row]

    def set_source_expressions(self, exprs: Any) -> None:
        (self.row,) = exprs

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        row: Any = self.row  # resolved: a column
        of_row, sql, parameters = _compiled(row.target.model, self.build)
        table, dot, _ = compiler.compile(row)[0].rpartition(".")  # quoted as Django does it here
        return sql.replace(of_row, table + dot), parameters


def compiled(build: Built) -> Callable[[], Q]:
    """Decorate a condition: what it returns is `Compiled`."""
    return wraps(build)(lambda: Q(Compiled(build)))


@cache
def _compiled(model: type[Model], build: Built) -> tuple[str, str, tuple[Any, ...]]:
    query = model._base_manager.filter(build()).query
    sql, parameters = query.get_compiler(connection=connection).compile(query.where)
    row = f"{connection.ops.quote_name(model._meta.db_table)}."
    return row, "({})".format(_INNER.sub(r"in\g<0>", sql)), tuple(parameters)
