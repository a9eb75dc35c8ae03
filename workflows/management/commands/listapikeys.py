from typing import Any

from workflows.management.database import DatabaseCommand
from workflows.models import ApiKey


class Command(DatabaseCommand):
    help = "List the API keys: number, start, client, what it may do; when made, last used, expiring and revoked."

    def handle(self, *args: Any, **options: Any) -> None:
        for key in ApiKey.objects.select_related("person").order_by("name", "id"):
            times = {
                "made": key.created_at,
                "last used": key.last_used_at,
                "expires": key.expires_at,
                "revoked": key.revoked_at,
            }
            told = "  ".join(f"{what} {at:%Y-%m-%d %H:%M}" for what, at in times.items() if at)
            self.stdout.write(f"{key.pk:>5}  {key.prefix}…  {key.name}  {key.bounds}  {told}")
