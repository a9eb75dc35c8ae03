"""System checks of the project's settings: what is missing, and what to add."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import FieldDoesNotExist
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import IntegerField

from workflows.definition import definitions
from workflows.sealing.key_register import needs_extra

Messages = Iterator[CheckMessage]

# Values of libpq's target_session_attrs that only a server which takes writes has.
PRIMARY = ("read-write", "primary")

# What the code and the guards of the database (migrations/0002_guards.py) need of a user.
FIELDS = ("email", "is_active", "is_staff", "is_superuser", "date_joined", "groups", "user_permissions")


def check_database(**kwargs: Any) -> Messages:
    """The database is PostgreSQL, and its Django app is installed."""
    engine, vendor = connections.settings[DEFAULT_DB_ALIAS]["ENGINE"], connections[DEFAULT_DB_ALIAS].vendor
    if vendor != "postgresql":
        yield Error(
            f"DATABASES has the engine {engine!r}: workflows are kept in PostgreSQL only, for its locks are the queue.",
            hint='Write DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": ...}}.',
            id="workflows.E030",
        )
    if not apps.is_installed("django.contrib.postgres"):
        yield Error(
            "INSTALLED_APPS lacks 'django.contrib.postgres', whose fields and indexes the tables have.",
            hint="Add 'django.contrib.postgres', after 'workflows'.",
            id="workflows.E031",
        )


def check_hosts(**kwargs: Any) -> Messages:
    """Of several hosts the primary is chosen, and each has its port.

    https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-MULTIPLE-HOSTS
    """
    database = connections.settings[DEFAULT_DB_ALIAS]
    hosts, ports = str(database.get("HOST") or "").split(","), str(database.get("PORT") or "").split(",")
    wanted = database.get("OPTIONS", {}).get("target_session_attrs", "any")
    if wanted not in PRIMARY and (len(hosts) > 1 or wanted != "any"):
        several = f"names {len(hosts)} hosts" if len(hosts) > 1 else "names a host"
        yield Error(
            f"DATABASE_URL {several} with target_session_attrs={wanted}: a process may connect to a standby, where "
            "nothing can be stored, and stay there.",
            hint="Write target_session_attrs=read-write: DATABASE_URL=postgres://...@db1,db2,db3/name"
            "?target_session_attrs=read-write.",
            id="workflows.E054",
        )
    if "" in hosts[1:] or (len(hosts) > 1 and hosts[0] == "") or len(ports) not in (1, len(hosts)):
        yield Error(
            f"DATABASE_URL names {len(hosts)} hosts and {len(ports)} ports, or a host without a name.",
            hint="Give each host its port, or none of them: DATABASE_URL=postgres://user@db1:5432,db2:5432/name.",
            id="workflows.E055",
        )


def check_named_definitions(**kwargs: Any) -> Messages:
    """There is something to run, from WORKFLOWS or a feature such as tasks; and times are aware."""
    if not settings.WORKFLOWS and not _has_definitions():
        yield Warning(
            "WORKFLOWS is not set, so there is no workflow to run.",
            hint="List your definitions by their dotted paths: WORKFLOWS = ['shop.workflow.ORDER'].",
            id="workflows.W033",
        )
    if not settings.USE_TZ:
        yield Error("USE_TZ is False: all times here are aware.", hint="Write USE_TZ = True.", id="workflows.E034")


def _has_definitions() -> bool:
    try:
        return bool(definitions())
    except Exception:  # a check of the feature reports it
        return True


def check_users(**kwargs: Any) -> Messages:
    """The user model has permissions, and a number as its primary key."""
    model = get_user_model()
    lacking = [name for name in FIELDS if not _has_field(model, name)]
    if not hasattr(getattr(model, "objects", None), "with_perm"):
        lacking.append("objects.with_perm")
    if lacking:
        yield Error(
            f"AUTH_USER_MODEL is {settings.AUTH_USER_MODEL!r}, which lacks {', '.join(lacking)}.",
            hint="Make it a subclass of django.contrib.auth.models.AbstractUser.",
            id="workflows.E035",
        )
    if not isinstance(model._meta.pk, IntegerField):
        yield Error(
            f"AUTH_USER_MODEL is {settings.AUTH_USER_MODEL!r}, whose primary key is not a number.",
            hint="Leave the primary key to Django: an AutoField or a BigAutoField.",
            id="workflows.E036",
        )


def _has_field(model: Any, name: str) -> bool:
    try:
        return bool(model._meta.get_field(name))
    except FieldDoesNotExist:
        return False


def check_sealing(**kwargs: Any) -> Messages:
    """The sealing package is installed if a definition needs it: nothing secret is ever stored in clear."""
    try:
        needed = needs_extra()
    except Exception:  # check_definitions reports it
        return
    if needed:
        yield Error(
            f"{', '.join(needed)}: this is stored sealed, and the package that seals is not installed.",
            hint="pip install 'django-onramp[sealing]'",
            id="workflows.E037",
        )


def check_database_is_verified(**kwargs: Any) -> Messages:
    """The way to a database on another host is encrypted, and its certificate is checked.

    https://www.postgresql.org/docs/current/libpq-ssl.html#LIBPQ-SSL-PROTECTION
    """
    found: dict[str, str] = {}
    for settings_of in connections.settings.values():
        if "postgres" in settings_of["ENGINE"]:
            found |= dict.fromkeys(_remote_hosts(settings_of), _sslmode(settings_of["OPTIONS"]))
    for host, mode in found.items():
        if mode != "verify-full":
            yield Warning(
                f"The database on {host} is reached with sslmode={mode}: somebody on the way can pose as it, and read "
                "and change all that is sent.",
                hint="Write sslmode=verify-full, and sslrootcert=<file> or =system: "
                "DATABASE_URL=postgres://...?sslmode=verify-full&sslrootcert=system.",
                id="workflows.W040",
            )


def _sslmode(options: dict[str, Any]) -> str:
    given = options.get("sslmode") or os.environ.get("PGSSLMODE")
    # With the system's certificates libpq accepts no other mode.
    is_system = (options.get("sslrootcert") or os.environ.get("PGSSLROOTCERT")) == "system"
    return given or ("verify-full" if is_system else "prefer")


def _remote_hosts(settings_of: dict[str, Any]) -> list[str]:
    """The hosts that libpq may connect to which are not this machine. What a service file names is not known."""
    options = settings_of["OPTIONS"]
    named = settings_of["HOST"] or options.get("host") or os.environ.get("PGHOST", "")
    address = options.get("hostaddr") or os.environ.get("PGHOSTADDR")
    return [host for host in str(address or named).split(",") if not _is_local(host.strip())]


def _is_local(host: str) -> bool:
    if not host or host.startswith(("/", "@")) or host == "localhost":  # a socket: its folder, or an abstract one
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
