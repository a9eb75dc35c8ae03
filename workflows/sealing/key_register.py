"""Which keys envelopes are sealed under: a process without one of them does not start.

The keys themselves are nowhere in the database.
"""

from __future__ import annotations

from importlib.util import find_spec

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, connection

from workflows.definition import definitions
from workflows.extras import ExtraMissing
from workflows.models import DataKey
from workflows.postgres.deadlines import DatabaseUnavailable, query_in_time
from workflows.sealing.envelopes import KeyLacking, keys


def require_keys() -> None:
    """Register the key that writes. Raises ImproperlyConfigured if DATA_KEYS lacks one that envelopes are sealed under.

    A process that serves on starts without an answer while the database is away, or lacks this release's migrations.
    Without the extra `sealing` none starts that would have to seal anything: raises ExtraMissing.
    """
    if needs_extra():
        raise ExtraMissing("cryptography")
    try:
        missing = query_in_time(_missing)
        seals = settings.OUTBOX_DESTINATIONS or any(each.secret_fields for each in definitions().values())
        if seals and not missing:
            query_in_time(register)
    except (DatabaseUnavailable, Error):
        return
    finally:
        connection.close()  # a worker is forked without
    if missing:
        raise ImproperlyConfigured(
            f"The database holds secrets that are sealed under the key {', '.join(missing)}, which DATA_KEYS lacks "
            "here. Add it behind the first one. See manage.py datakeys --help."
        )


# What these bring is stored sealed: secrets of webhooks, and what is not delivered yet.
_SEALING = ("OUTBOX_DESTINATIONS", "SIGNAL_SOURCES", "KAFKA_TOPICS", "KAFKA_SUBMISSIONS", "SQS_QUEUE_URL")


def needs_extra() -> list[str]:
    """What has something to seal, by settings, while the extra `sealing` is not installed."""
    if find_spec("cryptography"):
        return []
    secrets = [f"secret_fields of {each.name!r}" for each in definitions().values() if each.secret_fields]
    return secrets + [name for name in _SEALING if getattr(settings, name)]


def register() -> None:
    """The key that writes is in use from now on."""
    DataKey.objects.bulk_create([DataKey(id=keys()[0].id)], ignore_conflicts=True)


def is_left_to_others(unreadable: Exception) -> bool:
    """Whether another process may open it: while the keys are changed one has a key that this one lacks."""
    return isinstance(unreadable, KeyLacking) and DataKey.objects.filter(pk=unreadable.key_id).exists()


def forget_others() -> None:
    """No envelope is left that another key than the first one would open."""
    DataKey.objects.exclude(pk=keys()[0].id).delete()


def _missing() -> list[str]:
    registered = DataKey.objects.exclude(pk__in=[key.id for key in keys()])
    return list(registered.order_by("pk").values_list("pk", flat=True))
