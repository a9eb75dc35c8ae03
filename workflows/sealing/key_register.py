"""The register of data keys with envelopes: a process that lacks one of them does not start.

The database has only the ids of the keys.
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
    """Register the first data key. Raises ImproperlyConfigured if DATA_KEYS lacks a key under which envelopes are
    sealed.

    A process that stays up starts unchecked while the database is away, or lacks this release's migrations. Without the
    extra `sealing` no process starts that would have to seal anything: raises ExtraMissing.
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
        connection.close()  # workers are forked without a connection
    if missing:
        raise ImproperlyConfigured(
            f"The database holds secrets that are sealed under the key {', '.join(missing)}, which DATA_KEYS lacks "
            "here. Add it behind the first one. See manage.py datakeys --help."
        )


# Settings whose data is stored sealed: secrets of webhooks, and content not delivered yet.
_SEALING = ("OUTBOX_DESTINATIONS", "SIGNAL_SOURCES", "KAFKA_TOPICS", "KAFKA_SUBMISSIONS", "SQS_QUEUE_URL")


def needs_extra() -> list[str]:
    """The definitions and settings with something to seal, if the extra `sealing` is not installed."""
    if find_spec("cryptography"):
        return []
    secrets = [f"secret_fields of {each.name!r}" for each in definitions().values() if each.secret_fields]
    return secrets + [name for name in _SEALING if getattr(settings, name)]


def register() -> None:
    """Record that the first data key is in use."""
    DataKey.objects.bulk_create([DataKey(id=keys()[0].id)], ignore_conflicts=True)


def is_left_to_others(unreadable: Exception) -> bool:
    """Whether another process may open it: during a change of keys one may have a key that this one lacks."""
    return isinstance(unreadable, KeyLacking) and DataKey.objects.filter(pk=unreadable.key_id).exists()


def forget_others() -> None:
    """Remove the other keys from the register, because no envelope is left under them."""
    DataKey.objects.exclude(pk=keys()[0].id).delete()


def _missing() -> list[str]:
    registered = DataKey.objects.exclude(pk__in=[key.id for key in keys()])
    return list(registered.order_by("pk").values_list("pk", flat=True))
