"""The tables. The workflow's row is the queue and the lock; the others record what happened to it."""

from workflows.models.access import Access
from workflows.models.api_key import ApiKey
from workflows.models.attempt import Attempt, StepOutcome
from workflows.models.bulk_operation import BulkItem, BulkOperation
from workflows.models.business_key import BusinessKeyHash
from workflows.models.case_note import CaseNote
from workflows.models.chore import Chore
from workflows.models.confirmation import Confirmation
from workflows.models.correction import Correction, OriginalPayload
from workflows.models.data_key import DataKey
from workflows.models.deputy import Deputy
from workflows.models.effect import Effect
from workflows.models.erasure import Erasure
from workflows.models.event import Event
from workflows.models.failure import AssignedCause
from workflows.models.follow_up import FollowUp
from workflows.models.hold import Hold
from workflows.models.manual_task import ManualTask
from workflows.models.notice import MutedMail, Notice
from workflows.models.outbox_event import OutboxEvent
from workflows.models.pace import Pace
from workflows.models.pause import Pause
from workflows.models.proposal import Proposal
from workflows.models.rollup import Rollup, RollupProgress
from workflows.models.saved_view import SavedView
from workflows.models.search import Search, SearchKeyHash
from workflows.models.service import CircuitEvent, Service
from workflows.models.side_process import SideProcess
from workflows.models.signal import Signal
from workflows.models.spent_key import SpentKey
from workflows.models.undelivered_message import UndeliveredMessage
from workflows.models.wait import Wait
from workflows.models.webhook_secret import WebhookSecret
from workflows.models.worker_process import WorkerProcess
from workflows.models.workflow import State, Workflow

__all__ = [
    "Access",
    "ApiKey",
    "AssignedCause",
    "Attempt",
    "BulkItem",
    "BulkOperation",
    "BusinessKeyHash",
    "CaseNote",
    "Chore",
    "CircuitEvent",
    "Confirmation",
    "Correction",
    "DataKey",
    "Deputy",
    "Effect",
    "Erasure",
    "Event",
    "FollowUp",
    "Hold",
    "ManualTask",
    "MutedMail",
    "Notice",
    "OriginalPayload",
    "OutboxEvent",
    "Pace",
    "Pause",
    "Proposal",
    "Rollup",
    "RollupProgress",
    "SavedView",
    "Search",
    "SearchKeyHash",
    "Service",
    "SideProcess",
    "Signal",
    "SpentKey",
    "State",
    "StepOutcome",
    "UndeliveredMessage",
    "Wait",
    "WebhookSecret",
    "WorkerProcess",
    "Workflow",
]
