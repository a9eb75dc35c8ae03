"""EXTRAS: packages that only a part of the project needs. Without one, that part says what to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from django.core.exceptions import ImproperlyConfigured

# By the name that is imported: the extra of the distribution that brings it.
_EXTRAS = {
    "boto3": "sqs",
    "botocore": "sqs",
    "confluent_kafka": "kafka",
    "cryptography": "sealing",
    "django_tasks": "tasks",
    "opentelemetry": "traces",
    "prometheus_client": "metrics",
}


class ExtraMissing(ImproperlyConfigured):
    """A package of an extra is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'django-onramp[{_EXTRAS[package]}]'")


def load(module: str) -> ModuleType:
    """The module of ours that needs an extra. Raises ExtraMissing where that is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise ExtraMissing(package) from None
