from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class ApiKey(models.Model):
    """A key of an API client. It is shown once, when it is made; only its hash is kept.

    Two keys with one name belong to the same client, so a new key has access to what was sent with the old one. All
    else is each key's own. An empty bound bounds nothing.

    The key of a `person` is of another kind: it is for the operator's API alone, and sees what that person may see.
    """

    name = models.CharField(max_length=100)  # the client
    prefix = models.CharField(max_length=20)  # the start of the key, by which people recognise it
    tenant = models.CharField(max_length=100, db_default="")  # of what is sent with it
    tenant_only = models.BooleanField(db_default=False)  # it reaches no other tenant's; keys made before 0020 may
    types = ArrayField(models.CharField(max_length=100), db_default=models.Value("{}"))
    queues = ArrayField(models.CharField(max_length=100), db_default=models.Value("{}"))
    # Its rights, from `ingress.bounds.VERBS`: what each key may unless it is narrowed, and what it may beyond that.
    # Two columns, because an older process reads `may` alone.
    verbs = ArrayField(models.CharField(max_length=20), db_default=models.Value("{submit,read,signal}"))
    may = ArrayField(models.CharField(max_length=20), db_default=models.Value("{}"))
    person = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+", db_index=False
    )
    per_second = models.FloatField(null=True)  # requests, in each process
    digest = models.BinaryField(max_length=32, unique=True)  # SHA-256 of the key
    created_at = models.DateTimeField(db_default=Now())
    last_used_at = models.DateTimeField(null=True)  # written once an hour at most
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "API key"
        default_permissions = ("view",)
        permissions = [("revoke_apikey", "Can revoke an API key")]
        constraints = [
            models.CheckConstraint(
                name="api_key_of_a_person",
                condition=Q(person__isnull=False, verbs=[], may__contained_by=["look", "propose"])
                | Q(person__isnull=True) & ~Q(may__overlap=["look", "propose"]),
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @property
    def bounds(self) -> str:
        """What it may do, for people: `submit, read; type refill; 5 a second`."""
        parts = [", ".join([*self.verbs, *self.may])]
        parts += [f"as {self.person.get_username()}"] if self.person else []
        parts += [
            f"{noun} {', '.join(names)}" for noun, names in (("type", self.types), ("queue", self.queues)) if names
        ]
        if self.tenant:
            parts.append(f"tenant {self.tenant}" + (" only" if self.tenant_only else ""))
        if self.per_second:
            parts.append(f"{self.per_second:g} a second")
        return "; ".join(parts)
