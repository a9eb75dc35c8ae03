from typing import Any

from workflows.management.database import DatabaseCommand
from workflows.models import ApiKey


class Command(DatabaseCommand):
    help = "List the API keys: number, start of the key, client and tenant, rights, when it was made and revoked."

    def handle(self, *args: Any, **options: Any) -> None:
        for key in ApiKey.objects.order_by("name", "id"):
            revoked = f"revoked {key.revoked_at:%Y-%m-%d %H:%M}" if key.revoked_at else ""
            client = f"{key.name} of {key.tenant}" if key.tenant else key.name
            client += f"  may {', '.join(key.may)}" if key.may else ""
            self.stdout.write(f"{key.pk:>5}  {key.prefix}…  {client}  made {key.created_at:%Y-%m-%d %H:%M}  {revoked}")
