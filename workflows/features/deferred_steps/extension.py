"""What deferred steps bring to pages."""

from __future__ import annotations

from workflows.extension import Extension
from workflows.features.deferred_steps.bulk_verbs import RUN_EACH_AGAIN


class DeferredSteps(Extension):
    bulk_verbs = (RUN_EACH_AGAIN,)
