from django.apps import AppConfig


class QueuesConfig(AppConfig):
    """An app for the commands of this room. Its label leaves `queues` to apps of the project around it."""

    name = "workflows.features.queues"
    label = "workflows_queues"
