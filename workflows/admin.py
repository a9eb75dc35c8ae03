"""The console: one file for each page. Django imports this module to find them."""

from workflows.console import (
    api_key,
    bulk_operation,
    maintenance,
    manual_task,
    outbox_event,
    pace,
    retention,
    service,
    undelivered_message,
    worker_process,
    workflow_list,
)

__all__ = [
    "api_key",
    "bulk_operation",
    "maintenance",
    "manual_task",
    "outbox_event",
    "pace",
    "retention",
    "service",
    "undelivered_message",
    "worker_process",
    "workflow_list",
]
