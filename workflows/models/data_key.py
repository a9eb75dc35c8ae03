from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class DataKey(models.Model):
    """A key of the setting DATA_KEYS under which secrets are sealed. The row has only the key's id."""

    id = models.CharField(primary_key=True, max_length=8)
    since = models.DateTimeField(db_default=Now())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"data key {self.pk}"
