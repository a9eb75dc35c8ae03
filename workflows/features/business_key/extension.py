"""What the business key brings to pages and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from workflows.extension import Extension
from workflows.features.business_key.duplicates import TASK_TYPE


class BusinessKeyExtension(Extension):
    urgent_questions: ClassVar[Mapping[str, tuple[str, str]]] = {
        TASK_TYPE: ("possible duplicate", "possible duplicates"),
    }
