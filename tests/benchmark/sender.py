"""python -m tests.benchmark.sender MS: send each workflow that waits its signal, one every MS milliseconds."""

from __future__ import annotations

import os
import sys
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django.setup()

from workflows.models import Workflow  # noqa: E402
from workflows.signals import store  # noqa: E402 (needs the settings)


def main(every_ms: int) -> None:
    for pk in Workflow.objects.filter(workflow_type="awaits").order_by("?").values_list("pk", flat=True):
        store.send(source="benchmark", dedupe_key=str(pk), name="paid", workflow_id=pk, payload={})
        time.sleep(every_ms / 1000)


if __name__ == "__main__":
    main(int(sys.argv[1]))
