"""The console's groups, as migrations make them: a test with transactions of its own empties all tables behind it."""

from __future__ import annotations

from importlib import import_module

from django.apps import apps
from django.db import connection

MIGRATIONS = (
    ("0002_groups", "create_groups"),
    ("0006_groups_see_workers", "let_see"),
    ("0009_groups_may_cancel", "let_cancel"),
    ("0021_undelivered_message", "let_see"),
    ("0038_groups_see_services", "let_see"),
    ("0041_who_runs_again", "let_run_again"),
    ("0044_groups_see_searches", "let_see"),
    ("0045_groups_of_the_console", "make_groups"),
    ("0046_tasks_are_assigned", "let_assign"),
    ("0048_cancel_what_is_paid", "let_cancel_what_is_paid"),
    ("0048_who_acknowledges", "let_acknowledge"),
)


def make_groups() -> None:
    with connection.schema_editor() as editor:
        for migration, function in MIGRATIONS:
            getattr(import_module(f"workflows.migrations.{migration}"), function)(apps, editor)
