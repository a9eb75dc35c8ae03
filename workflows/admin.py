"""The console: one file for each page. Django imports this module to find them, and those of the features."""

from workflows.console import api_key, maintenance, manual_task, worker_process, workflow_list
from workflows.extension import installed

__all__ = ["api_key", "maintenance", "manual_task", "worker_process", "workflow_list"]

for each in installed():
    each.lists()
