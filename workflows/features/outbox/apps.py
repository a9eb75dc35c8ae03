from django.apps import AppConfig


class OutboxConfig(AppConfig):
    """An app for the commands of this room. Its label leaves `outbox` to apps of the project around it."""

    name = "workflows.features.outbox"
    label = "workflows_outbox"
