"""The features of this release, in the order in which they are asked.

It is code, and no setting: a worker without one of them gives up what it guarantees, and nobody would be told. Without
the business key a patient who sends twice is charged twice; without deferred steps what is left undone stays so.
"""

from __future__ import annotations

from workflows.engine.extension import Feature
from workflows.extension import Extension
from workflows.features.bulk.extension import BulkExtension
from workflows.features.business_key.hooks import BusinessKey
from workflows.features.corrections.extension import CorrectionsExtension
from workflows.features.deferred_steps.extension import DeferredStepsExtension
from workflows.features.deferred_steps.hooks import DeferredSteps
from workflows.features.outages.extension import OutagesExtension
from workflows.features.outbox.extension import OutboxExtension
from workflows.features.queues.extension import QueuesExtension
from workflows.features.retention.extension import RetentionExtension

FEATURES: tuple[Feature, ...] = (BusinessKey(), DeferredSteps())

# Of the pages, metrics, checks and commands.
EXTENSIONS: tuple[Extension, ...] = (
    OutagesExtension(),
    DeferredStepsExtension(),
    CorrectionsExtension(),
    BulkExtension(),
    RetentionExtension(),
    OutboxExtension(),
    QueuesExtension(),
)
