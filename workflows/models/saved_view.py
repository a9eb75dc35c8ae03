from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from workflows.models.clock import ClockTimestamp

# Characters.
LONGEST_NAME, LONGEST_QUERY = 60, 1000


class SavedView(models.Model):
    """Filters of the list of workflows under a name: of a user (`owner`), or of a `team`, which is a group's name."""

    name = models.CharField(max_length=LONGEST_NAME)
    query = models.CharField(max_length=LONGEST_QUERY)  # as in the list's address
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    team = models.CharField(max_length=150, db_default="")
    saved_by = models.CharField(max_length=150)
    saved_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        default_permissions = ()
        permissions = [("share_savedview", "Can save a view of the list of workflows for a team, and delete a team's")]
        constraints = [
            models.CheckConstraint(name="saved_view_is_somebodys", condition=Q(owner=None) ^ Q(team="")),
            models.UniqueConstraint(name="saved_view_of_owner", fields=["owner", "name"], condition=~Q(owner=None)),
            models.UniqueConstraint(name="saved_view_of_team", fields=["team", "name"], condition=~Q(team="")),
        ]

    def __str__(self) -> str:
        return f"view {self.pk}"
