"""The secrets that webhooks are signed with: each is sealed for its row and its source."""

from __future__ import annotations

from uuid import UUID

from django.db import transaction

from workflows.models import WebhookSecret
from workflows.sealing.envelopes import Unreadable
from workflows.sealing.rows import Progress, Secret


def stored(row: WebhookSecret) -> Secret:
    """What is stored of a secret; one from before they were sealed is in clear."""
    return Secret(row.pk, UUID(int=row.pk), "", f"the secret of {row.source}", row.secret)


def check(progress: Progress) -> None:
    """Open each, and count how they are kept."""
    for row in WebhookSecret.objects.order_by("pk"):
        progress.kept_as[stored(row).kept_as] += 1
        try:
            stored(row).open()
        except Unreadable as unreadable:
            progress.unreadable[str(row)] = str(unreadable)


def reseal(progress: Progress) -> None:
    """Seal each under the key that writes."""
    for row in WebhookSecret.objects.order_by("pk"):
        if stored(row).is_settled:
            continue
        try:
            seal(row, stored(row).open())
        except Unreadable as unreadable:
            progress.unreadable[str(row)] = str(unreadable)
        else:
            progress.sealed += 1


def create(source: str, secret: str) -> None:
    """Store a secret, sealed."""
    with transaction.atomic():
        seal(WebhookSecret.objects.create(source=source, secret=""), secret)


def seal(row: WebhookSecret, secret: str) -> None:
    row.secret = stored(row)._replace(stored=secret).sealed_anew()
    row.save(update_fields=["secret"])
