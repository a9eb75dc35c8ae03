from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class ApiKey(models.Model):
    """A key of an API client. The key is shown once, when it is made; only its hash is kept.

    Two keys of one name are the same client, so that a new key has access to what was sent with the old one.
    """

    name = models.CharField(max_length=100)  # the client
    prefix = models.CharField(max_length=20)  # the start of the key, to tell keys apart
    tenant = models.CharField(max_length=100, db_default="")  # of what it sends; of two keys of a client the newer says
    # What it may do beside sending: of `ingress.api_keys.RIGHTS`.
    may = ArrayField(models.CharField(max_length=20), db_default=models.Value("{}"))
    digest = models.BinaryField(max_length=32, unique=True)  # SHA-256 of the key
    created_at = models.DateTimeField(db_default=Now())
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "API key"
        default_permissions = ("view",)
        permissions = [("revoke_apikey", "Can revoke an API key")]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
