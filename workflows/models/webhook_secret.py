from __future__ import annotations

from uuid import UUID

from django.db import models
from django.db.models.functions import Now


class WebhookSecret(models.Model):
    """A secret of a source, one of several during a rotation. Not a hash: checking a signature needs the secret."""

    source = models.CharField(max_length=100)
    secret = models.CharField(max_length=400)  # an envelope (`sealing.whole`) of the source's secret
    created_at = models.DateTimeField(db_default=Now())
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"webhook secret {self.pk} of {self.source}"

    @property
    def sealed_for(self) -> tuple[UUID, str]:
        return UUID(int=self.pk), f"the secret of {self.source}"
