"""Which transactions had committed: PostgreSQL's own mark of what a statement has seen, of constant size.

A signal's id would not do: ids are given out before the commit, so a lower one may become visible later.
"""

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    _Integer = models.BigIntegerField[int | None, int | None]
    _Text = models.TextField[str | None, str | None]
else:
    _Integer, _Text = models.BigIntegerField, models.TextField


class TransactionId(_Integer):
    """`xid8`: the transaction that wrote the row. Read it in SQL only."""

    def db_type(self, connection: object) -> str:
        return "xid8"


class Snapshot(_Text):
    """`pg_snapshot`, as text: what was committed when a statement started (`pg_visible_in_snapshot`)."""

    def db_type(self, connection: object) -> str:
        return "pg_snapshot"


class CurrentTransactionId(models.Func):
    """`pg_current_xact_id()`: the outermost transaction, even inside a savepoint."""

    function = "pg_current_xact_id"
    template = "%(function)s()"
    output_field = TransactionId()
