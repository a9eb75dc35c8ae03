from django.apps import AppConfig


class DoctorConfig(AppConfig):
    """An app for the commands of this room. Its label leaves `doctor` to apps of the project around it."""

    name = "workflows.features.doctor"
    label = "workflows_doctor"
