from django.apps import AppConfig


class RetentionConfig(AppConfig):
    """An app for the commands of this room. Its label leaves `retention` to apps of the project around it."""

    name = "workflows.features.retention"
    label = "workflows_retention"
