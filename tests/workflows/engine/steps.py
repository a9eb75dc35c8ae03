"""Steps of one line, of which the tests of a worker make their definitions."""

from typing import Any

from django.contrib.auth.models import Group

from workflows.models import Workflow


def say_one(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    return {"number": 1}


def write_a_group(*, workflow: Workflow, context: Any) -> dict[str, Any]:
    Group.objects.create(name="written by a step")
    return {}
