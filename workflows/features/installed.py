"""The features of this release, in the order in which the engine asks them.

The list is code, not a setting: without a feature a worker would break its guarantees unnoticed. Without the business
key, a patient who submits twice is charged twice; without deferred steps, failed best-effort steps are never done.
"""

from __future__ import annotations

from workflows.engine.extension import Feature
from workflows.extension import Extension
from workflows.features.audit.extension import AuditExtension
from workflows.features.brake.extension import BrakeExtension
from workflows.features.brake.hooks import Brake
from workflows.features.bulk.extension import BulkExtension
from workflows.features.bulk.hooks import Bulk
from workflows.features.business_key.extension import BusinessKeyExtension
from workflows.features.business_key.hooks import BusinessKey
from workflows.features.by_hand.extension import ByHandExtension
from workflows.features.cases.extension import CasesExtension
from workflows.features.cases.hooks import Cases
from workflows.features.corrections.extension import CorrectionsExtension
from workflows.features.corrections.hooks import Corrections
from workflows.features.deferred_steps.extension import DeferredStepsExtension
from workflows.features.deferred_steps.hooks import DeferredSteps
from workflows.features.deputies.extension import DeputiesExtension
from workflows.features.deputies.hooks import Deputies
from workflows.features.doctor.extension import DoctorExtension
from workflows.features.doubts.extension import DoubtsExtension
from workflows.features.lists.extension import ListsExtension
from workflows.features.notices.extension import NoticesExtension
from workflows.features.notices.hooks import Notices
from workflows.features.operator_api.extension import OperatorApiExtension
from workflows.features.operator_api.hooks import OperatorApi
from workflows.features.outages.extension import OutagesExtension
from workflows.features.outages.hooks import Outages
from workflows.features.outbox.extension import OutboxExtension
from workflows.features.outbox.hooks import Outbox
from workflows.features.pace.extension import PaceExtension
from workflows.features.pauses.extension import PausesExtension
from workflows.features.pauses.hooks import Pauses
from workflows.features.queues.extension import QueuesExtension
from workflows.features.retention.extension import RetentionExtension
from workflows.features.retention.hooks import Retention
from workflows.features.tasks.extension import TasksExtension
from workflows.features.tasks.hooks import Tasks
from workflows.features.traces.hooks import Traces
from workflows.features.trends.extension import TrendsExtension
from workflows.features.trends.hooks import Trends
from workflows.features.two_people.extension import TwoPeopleExtension
from workflows.features.undo.hooks import Undo

FEATURES: tuple[Feature, ...] = (
    Outages(),
    Brake(),
    Pauses(),  # before the business key, which would let a paused workflow wait for another one
    BusinessKey(),
    DeferredSteps(),
    Cases(),
    Corrections(),
    Bulk(),
    Retention(),
    Outbox(),
    Notices(),
    Deputies(),
    Trends(),
    Traces(),
    Tasks(),
    Undo(),
    OperatorApi(),
)

# What the features add to pages, metrics, checks and commands.
EXTENSIONS: tuple[Extension, ...] = (
    OutagesExtension(),
    BrakeExtension(),
    PaceExtension(),
    DeferredStepsExtension(),
    OutboxExtension(),
    NoticesExtension(),
    CorrectionsExtension(),
    TwoPeopleExtension(),
    ByHandExtension(),
    DoubtsExtension(),
    BusinessKeyExtension(),
    BulkExtension(),
    RetentionExtension(),
    QueuesExtension(),
    CasesExtension(),
    PausesExtension(),
    DeputiesExtension(),
    ListsExtension(),
    TrendsExtension(),
    DoctorExtension(),
    AuditExtension(),
    TasksExtension(),
    OperatorApiExtension(),
)
