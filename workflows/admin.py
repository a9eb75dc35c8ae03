"""The console: one file for each page. Django imports this module to find them."""

from workflows.console import api_key, maintenance, manual_task, worker_process, workflow_list
from workflows.features.bulk import page as bulk_operation
from workflows.features.outages import service_page as service
from workflows.features.outbox import page as outbox_event
from workflows.features.pace import page as pace
from workflows.features.queues import page as undelivered_message
from workflows.features.retention import page as retention

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
