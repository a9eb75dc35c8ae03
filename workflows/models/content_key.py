from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import models

from workflows.postgres.jsonb import SEALED

# Opens a sealed value: (the value, the alias of the connection). `sealing.private` puts it here.
openers: list[Callable[[dict[str, Any], str], Any]] = []


class ContentKey(models.Model):
    """The key of a private workflow, or of a signal, wrapped by DATA_KEYS. Without it nobody reads that, anywhere."""

    idempotency_key = models.UUIDField(primary_key=True)  # of the workflow; of a signal a number of the key's own
    wrapped = models.CharField(max_length=200)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"the key of {self.idempotency_key}"


class Unopened(dict[str, Any]):
    """In place of a sealed value (`stored`) that does not open: it has what stands in clear beside that. `why`: why."""

    def __init__(self, stored: dict[str, Any], why: Exception) -> None:
        super().__init__({name: value for name, value in stored.items() if name != SEALED})
        self.stored, self.why = stored, why


class PrivateJSONField(models.JSONField):
    """JSON that is sealed where the workflow is private. Whoever reads it through the model reads it in clear."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        read = super().from_db_value(value, expression, connection)
        if type(read) is dict and SEALED in read:
            for each in openers:
                return each(read, connection.alias)
        return read

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs
