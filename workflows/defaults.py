"""DEFAULTS of the settings that this package reads: what a project does not set. docs/deployment.md tells of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import connections

DEFAULTS: dict[str, Any] = {
    "WORKFLOWS": [],  # `checks_of_settings` asks for one
    "SUBMISSION_WORKFLOW": "",
    "PERSON_WORD": "customer",
    "SIGNAL_SOURCES": [],
    "RELEASE": "",
    "WORKER_LEASE_SECONDS": 0,
    "WORKER_HEALTH_FILE": "",
    "SEARCH_KEYS": [],
    "DATA_KEYS": [],
    "METRICS_TOKEN": "",
    "CELLS": {},
    "AUDIT_KEPT_DAYS": 2192,
    "MESSAGES_KEPT_DAYS": 90,
    "REFUSED_SUBMISSIONS_KEPT": 1000,
    "KAFKA_BROKERS": "",
    "KAFKA_TOPICS": [],
    "KAFKA_SUBMISSIONS": [],
    "KAFKA_GROUP": "onramp",
    "KAFKA_OPTIONS": "",
    "OUTBOX_DESTINATIONS": "",
    "OUTBOX_SOURCE": "onramp",
    "CONSOLE_URL": "",
    "SQS_QUEUE_URL": "",
    "SQS_CLIENT": "",
    "SQS_DEAD_LETTERS_URL": "",
    "SQS_VISIBILITY_SECONDS": 60,
}

ATTEMPT_LOG = "attempt_log"


def fill_in(defaults: Mapping[str, Any]) -> None:
    """Set the settings that the project does not. Called before any other module of the app is imported."""
    for name, value in defaults.items():
        if not hasattr(settings, name):
            setattr(settings, name, value)


def add_attempt_log() -> None:
    """Make the alias of the worker's second connection of `default`, unless the project has one (`state.attempt_log`).

    It stays in autocommit, in a request too. Its few statements are prepared at the fifth time, psycopg's default.
    """
    databases = connections.settings
    default = databases["default"]
    # For Django's others a check says that PostgreSQL is needed; they do not know our options.
    is_another = default.get("ENGINE", "").rpartition(".")[2] in ("sqlite3", "mysql", "oracle", "dummy")
    if ATTEMPT_LOG not in databases and not is_another:
        databases[ATTEMPT_LOG] = {
            **default,
            "ATOMIC_REQUESTS": False,
            "OPTIONS": {**default["OPTIONS"], "prepare_threshold": 5},
            "TEST": {**default["TEST"], "MIRROR": "default"},
        }
