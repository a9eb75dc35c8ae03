from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class WebhookSecret(models.Model):
    """A secret of a source, one of several in a rotation. No hash: checking a signature needs the secret itself."""

    source = models.CharField(max_length=100)
    secret = models.CharField(max_length=400)  # an envelope (`sealing.webhook_secrets`) of what the source has
    created_at = models.DateTimeField(db_default=Now())
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"webhook secret {self.pk} of {self.source}"
