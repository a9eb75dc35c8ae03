from typing import Any

from workflows.ingress import webhooks
from workflows.management.database import DatabaseCommand
from workflows.models import WebhookSecret


class Command(DatabaseCommand):
    help = (
        "List the secrets that webhooks are signed with: number, start of the secret, source, when it was made and "
        "revoked. A source without a valid secret is refused (401)."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        for secret in WebhookSecret.objects.order_by("source", "id"):
            revoked = f"revoked {secret.revoked_at:%Y-%m-%d %H:%M}" if secret.revoked_at else ""
            self.stdout.write(
                f"{secret.pk:>5}  {webhooks.shown(webhooks.opened_secret(secret))}…  {secret.source}  "
                f"made {secret.created_at:%Y-%m-%d %H:%M}  {revoked}"
            )
