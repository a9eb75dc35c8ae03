"""The tables of sign-ins, besides those of Django, django-axes and allauth."""

from __future__ import annotations

from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import models


class FactorSecret(models.Model):
    """The secret of a second factor, sealed under DATA_KEYS. allauth's row has only its key."""

    key = models.UUIDField(default=uuid4, unique=True, editable=False)
    sealed = models.TextField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"The secret {self.key}"

    @property
    def sealed_for(self) -> tuple[UUID, str]:
        return self.key, "second factor"


class EnrolmentLink(models.Model):
    """A link by which a user may enrol a second factor. Using it deletes it."""

    user = models.ForeignKey(User, models.CASCADE)
    digest = models.CharField(max_length=64, unique=True)
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"A link for {self.user}"
