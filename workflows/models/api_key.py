from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now


class ApiKey(models.Model):
    """A key of an API client. It is shown once, when it is made; only its hash is kept.

    Two keys with one name belong to the same client, so a new key has access to what was sent with the old one.
    """

    name = models.CharField(max_length=100)  # the client
    prefix = models.CharField(max_length=20)  # the start of the key, by which people recognise it
    tenant = models.CharField(max_length=100, db_default="")  # of what it sends; a client's newer key decides
    # Its rights beyond sending, from `ingress.api_keys.RIGHTS`.
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
