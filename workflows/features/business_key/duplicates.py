"""DUPLICATES: only one workflow of a business key runs at a time, so that nobody is charged twice by mistake.

A worker compares a workflow with the others when it takes it up; the intake never does (docs/adr/0020). It writes the
workflow's role in a transaction on the attempt log, under an advisory lock on the business key. So a second worker sees
the holder at once, without waiting for the row that the first worker has locked. Only a certain repeat ends without
a person's decision. If it may be another person, or a patient who has come back, a person is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple

from django.db import transaction

from workflows import charges
from workflows.definition import WorkflowDefinition, definitions
from workflows.engine.outcomes import Failed, Held, Told, failed_before_any_step
from workflows.errors import DIFFERS, DUPLICATE, DUPLICATES, ClaimLost, StepError, Suspend
from workflows.features.business_key import holders
from workflows.features.business_key.holders import FORMER, HOLDER, HOLDER_ENDED, WAITING, Holder
from workflows.features.business_key.likeness import Person, compare_people, differing_fields, has_key, has_other_key
from workflows.models import Attempt, Event, ManualTask, Wait, Workflow
from workflows.postgres.round_trips import session_of
from workflows.postgres.statements import fetch_all
from workflows.state import attempt_log
from workflows.state.attempt_log import ALIAS, FENCE, OpenAttempt
from workflows.waits import URGENT, ask, is_answered, withdraw, withdraw_unanswered

TASK_TYPE = "possible_duplicate"
QUESTION_PREFIX = "duplicate:"
# A patient waits for the answer. After a month without one the workflow fails uncharged, and people are told.
QUESTION_TIMEOUT = timedelta(days=30)
# While a person is asked, a failed workflow with a charge may be refunded or completed.
LOOK_AGAIN = timedelta(hours=1)


class Verdict(IntEnum):
    """What another workflow of the same business key means for this one. The highest verdict wins."""

    GO_ON = 0
    ASK = 1  # a person
    WAIT = 2  # until it ends
    SAME = 3  # it is done, and this is the same again


class InTheWay(NamedTuple):
    """A holder in the way of a workflow, and its verdict. `differ` names the fields in which the two differ."""

    holder: Holder
    verdict: Verdict
    person: Person
    differ: list[str]


def judge(definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt) -> Held | Failed | None:
    """What to do instead of running `workflow`, because of another one of its business key. None: run it.

    Called for definitions that have one.
    """
    questions = _questions(workflow) if attempt.number > 1 else []
    answers = _read_answers(definition, workflow, questions)  # by holder; each is asked about once
    while found := _take(definition, workflow, attempt, answers):
        holder = found.holder
        if questions:  # the holder may be a new one: an answer about the old one does not count
            _withdraw_questions(workflow, but=holder.workflow_id)
        if found.verdict == Verdict.WAIT:
            what = f"workflow {holder.workflow_id}, which is under way for {definition.wording.same_business}"
            suspend = Suspend(what, wake_on=[HOLDER_ENDED], until=holder.look_again_at)
            return Held(workflow.current_step, suspend, Attempt.Outcome.WAITING)
        if found.verdict == Verdict.SAME:
            is_unanswered = answers.get(holder.workflow_id) == "expired"
            differs = bool(found.differ)
            return _end(definition, workflow, holder.workflow_id, differs=differs, is_unanswered=is_unanswered)
        try:
            answers[holder.workflow_id] = _ask(definition, workflow, found)
        except Suspend as suspend:
            if holder.status == Workflow.Status.PENDING:  # if the holder fails, the question is void
                suspend.wake_on.append(HOLDER_ENDED)
            return Held(workflow.current_step, suspend, Attempt.Outcome.HELD)
    return _judge_by_questions(definition, workflow) if questions else None


def _ask(definition: WorkflowDefinition, workflow: Workflow, found: InTheWay) -> str:
    """Return a person's answer: "approved" to carry the workflow out as well, "rejected", or "expired"."""
    holder, same = found.holder, definition.wording.same_business
    stands = {
        Workflow.Status.PENDING: "is under way",
        Workflow.Status.COMPLETE: "is complete",
        Workflow.Status.FAILED: "has failed, and a charge or another call of it stands, or may",
    }[Workflow.Status(holder.status)]
    facts = {"The other one": f"Workflow {holder.workflow_id} is for {same}. It {stands}."}
    if not has_key(definition, holder.payload):
        facts["They differ in"] = "Nobody can tell: what the other one was sent is deleted."
    else:
        if found.person == Person.UNSURE:
            facts["The person"] = "Perhaps another one: names and dates by which people are told apart agree in part."
        if has_other_key(definition, workflow.payload, holder.payload):
            facts["Corrected"] = f"Workflow {holder.workflow_id} was corrected: by now it is no longer for {same}."
        facts["They differ in"] = ", ".join(found.differ) or "nothing"
    look_every = LOOK_AGAIN if holder.status == Workflow.Status.FAILED else None
    return _answer(workflow, holder.workflow_id, same, facts, look_every)


def _answer(
    workflow: Workflow, holder: int, same: str, facts: Mapping[str, str], look_every: timedelta | None = None
) -> str:
    answer = ask(
        workflow,
        f"{QUESTION_PREFIX}{holder}",
        question=f"Workflow {holder} is for {same}, too. Should this one be carried out as well?",
        facts=facts,
        task_type=TASK_TYPE,
        timeout=QUESTION_TIMEOUT,
        due=URGENT,
        look_every=look_every,
    )
    return answer.outcome


class Question(NamedTuple):
    """A question about a holder, and its answer. `holds`: the workflow has waited for this answer."""

    holder: int
    name: str
    outcome: str
    holds: bool


def _questions(workflow: Workflow) -> list[Question]:
    asked = Wait.objects.filter(workflow=workflow.pk, name__startswith=QUESTION_PREFIX, superseded=False).order_by("pk")
    return [
        Question(
            int(name.removeprefix(QUESTION_PREFIX)),
            name,
            outcome,
            holds=ManualTask(pk=task).signal_name in workflow.wake_on,
        )
        for name, outcome, task in asked.values_list("name", "outcome", "manual_task")
    ]


def _read_answers(definition: WorkflowDefinition, workflow: Workflow, questions: Sequence[Question]) -> dict[int, str]:
    """People's answers, by holder. An answer counts even if the holder has changed since."""
    answers = {each.holder: each.outcome for each in questions}
    for holder, outcome in answers.items():
        if not outcome and is_answered(workflow, f"{QUESTION_PREFIX}{holder}"):
            answers[holder] = _answer(workflow, holder, definition.wording.same_business, {})
    return {holder: outcome for holder, outcome in answers.items() if outcome}


def _withdraw_questions(workflow: Workflow, but: int) -> None:
    for each in _questions(workflow):
        if each.holder != but:
            withdraw_unanswered(workflow, each.name)


def _judge_by_questions(definition: WorkflowDefinition, workflow: Workflow) -> Held | Failed | None:
    """What to do instead of running a workflow that has nothing in its way any more. None: run it.

    If the holder was under way and has ended, the workflow runs, whatever the answer. Otherwise a "no" that was given
    earlier counts. If the holder is COMPLETE, and was emptied meanwhile, its question stays open.
    """
    for each in _questions(workflow):
        answer = each.outcome
        if HOLDER_ENDED in workflow.wake_on or not (answer or _is_complete(each.holder)):
            if not answer:
                withdraw(workflow, each.name)
            continue
        if not answer:
            try:
                answer = _answer(workflow, each.holder, definition.wording.same_business, {})
            except Suspend as suspend:
                return Held(workflow.current_step, suspend, Attempt.Outcome.HELD)
        if each.holds and answer != "approved":
            return _end(definition, workflow, each.holder, differs=True, is_unanswered=answer == "expired")
    return None


def _is_complete(workflow_id: int) -> bool:
    return Workflow.objects.filter(pk=workflow_id, status=Workflow.Status.COMPLETE).exists()


def _take(
    definition: WorkflowDefinition, workflow: Workflow, attempt: OpenAttempt, answers: Mapping[int, str]
) -> InTheWay | None:
    """Make the workflow a holder of its business key, unless another one is in its way: return that one."""
    hashes = holders.hashes_in(definition, workflow.tenant, workflow.payload)
    if not hashes:
        return None
    with attempt_log.errors_lose_the_claim(), transaction.atomic(using=ALIAS):
        run = session_of(ALIAS).run
        holders.lock(run, hashes)
        # A new statement has a new snapshot, so it sees what the previous owner of the lock has written.
        others = holders.read(run, definition, workflow, hashes)
        if any(each.workflow_id == workflow.pk for each in others):
            return None
        found = _first_in_the_way(definition, workflow, workflow.payload, others, answers)
        is_pending = found is not None and found.holder.status == Workflow.Status.PENDING
        role = HOLDER if found is None else WAITING if is_pending else FORMER
        # A COMPLETE workflow stays a holder, because others may have been accepted earlier.
        over = [each.workflow_id for each in others if each.status == Workflow.Status.FAILED and not each.counts]
        replaced = over if found is None else []
        if not holders.write(run, hashes, workflow, role, replaced, allowed=FENCE, claim_xid=attempt.claim_xid):
            raise ClaimLost("the claim's transaction has ended")
    return found


def _first_in_the_way(
    definition: WorkflowDefinition,
    workflow: Workflow,
    payload: Mapping[str, Any],
    others: Sequence[Holder],
    answers: Mapping[int, str],
) -> InTheWay | None:
    """The holder with the highest verdict for this payload, then the oldest. None if no holder is in the way."""
    judged = [
        _judge_by(definition, workflow, payload, each, answers)
        for each in others
        if each.counts and each.workflow_id != workflow.pk
    ]
    return max((each for each in judged if each.verdict), key=lambda each: each.verdict, default=None)


def _judge_by(
    definition: WorkflowDefinition,
    workflow: Workflow,
    payload: Mapping[str, Any],
    holder: Holder,
    answers: Mapping[int, str],
) -> InTheWay:
    answer = answers.get(holder.workflow_id)
    person = compare_people(definition, payload, holder.payload)
    differ = differing_fields(definition, payload, holder.payload)
    is_unsure = person == Person.UNSURE or has_other_key(definition, payload, holder.payload)
    is_pending = holder.status == Workflow.Status.PENDING
    if answer == "approved" or person == Person.ANOTHER:
        verdict = Verdict.GO_ON
    elif is_unsure and not answer:
        verdict = Verdict.ASK
    elif is_pending:
        verdict = Verdict.WAIT
    elif not answer and (
        differ
        or holder.status == Workflow.Status.FAILED
        or "approved" in answers.values()  # somebody has said to carry it out
        or _has_left(definition, workflow)
    ):
        verdict = Verdict.ASK
    else:
        verdict = Verdict.SAME
    return InTheWay(holder, verdict, person, differ)


def _has_left(definition: WorkflowDefinition, workflow: Workflow) -> bool:
    """Whether the workflow itself has, or may have, a charge from an earlier run: then it does not end unseen."""
    sql = f"SELECT 1 FROM workflows_workflow w WHERE w.id = %(workflow_id)s AND {charges.LEFT}"  # noqa: S608 (ours)
    return bool(fetch_all(sql, {"workflow_id": workflow.pk, **charges.parameters(definition)}))


def _end(
    definition: WorkflowDefinition, workflow: Workflow, first: int, *, differs: bool, is_unanswered: bool
) -> Failed:
    """End the workflow as a duplicate of `first`. `differs`: a person said not to carry it out, or did not answer.

    It counts as acknowledged, unless nobody answered or a charge of its own stands.
    """
    error = StepError("Another workflow has done the same.", code=DIFFERS if differs else DUPLICATE)
    is_acknowledged = not (is_unanswered or _has_left(definition, workflow))
    told = Told(Event.Kind.DUPLICATE, {"first": first, "error_code": error.code}, is_acknowledged)
    return failed_before_any_step(definition, workflow, error, told)


# --- What people see, and decide ----------------------------------------------------------------------


def is_waiting(workflow: Workflow) -> bool:
    """Whether the workflow waits for another one of its business key, without a question to a person."""
    return workflow.wake_on == [HOLDER_ENDED]


def is_asked_about(workflow: Workflow) -> bool:
    """Whether a person is being asked if the workflow is a duplicate."""
    asked = ManualTask.objects.open().filter(workflow=workflow.pk, task_type=TASK_TYPE)
    return bool(workflow.waiting_for) and asked.exists()


def has_ended_as_one(workflow: Workflow) -> bool:
    """Whether the workflow ended as a duplicate."""
    return workflow.status == Workflow.Status.FAILED and workflow.last_error_code in DUPLICATES


_DONE_BY_ANOTHER = """
    SELECT w.id FROM workflows_workflow w
     CROSS JOIN LATERAL (
           SELECT (detail ->> 'first')::bigint AS id FROM workflows_event e
            WHERE e.workflow_id = w.id AND e.kind = 'duplicate' ORDER BY e.id DESC LIMIT 1) told
      LEFT JOIN workflows_workflow first ON first.id = told.id
     WHERE w.id = ANY (%s) AND w.status = 'FAILED' AND w.last_error_code = ANY (%s)
       AND coalesce(first.status, 'COMPLETE') = 'COMPLETE'"""


def done_by_another(*workflow_ids: int) -> set[int]:
    """Which of these workflows ended as duplicates of one that is COMPLETE or deleted.

    A retry would only compare them again. Once the hashes of the first are gone, it would charge a second time.
    """
    return {pk for (pk,) in fetch_all(_DONE_BY_ANOTHER, [list(workflow_ids), list(DUPLICATES)])}


def is_one(workflow: Workflow) -> bool:
    """Whether a person may say of the workflow that it is not a duplicate."""
    return is_waiting(workflow) or has_ended_as_one(workflow)


def make_holder(workflow: Workflow) -> None:
    """Make the workflow a holder beside the others of its business key, in the caller's transaction."""
    if hashes := holders.hashes_of(workflow):
        run = session_of().run
        holders.lock(run, hashes)
        holders.write(run, hashes, workflow, HOLDER)


def in_place_of(workflow: Workflow, payload: Mapping[str, Any]) -> int | None:
    """The workflow that certainly does, or has done, the same as this one would with another payload; None if none.

    None also where a person would be asked: the worker asks when it takes the workflow up.
    """
    definition = definitions().get(workflow.workflow_type)
    hashes = holders.hashes_in(definition, workflow.tenant, payload)
    if definition is None or not hashes:
        return None
    others = holders.read(fetch_all, definition, workflow, hashes)
    if any(each.workflow_id == workflow.pk for each in others):
        return None
    found = _first_in_the_way(definition, workflow, payload, others, {})
    return found.holder.workflow_id if found and found.verdict > Verdict.ASK else None


def differing_from(workflow: Workflow, other_id: int) -> list[str]:
    """The labels of the fields in which two workflows of a type differ; empty if one is emptied."""
    definition = definitions().get(workflow.workflow_type)
    rows = Workflow.objects.filter(pk__in=[workflow.pk, other_id], emptied_at=None).values_list("pk", "payload")
    payloads = dict(rows)
    if definition is None or len(payloads) < 2:
        return []
    return differing_fields(definition, payloads[workflow.pk], payloads[other_id])


class Other(NamedTuple):
    """Another workflow of the same business key, and its role."""

    workflow_id: int
    role: str
    status: str
    error_code: str

    @property
    def is_waiting(self) -> bool:
        return self.role == WAITING and self.status == Workflow.Status.PENDING


# The newest of both kinds are shown: a key may have been sent a thousand times.
OTHERS_SHOWN = 5
_SAME = """
    SELECT w.id, k.role, w.status, w.last_error_code
      FROM workflows_businesskey k JOIN workflows_workflow w ON w.id = k.workflow_id
     WHERE k.hash = ANY (%(hashes)s::bytea[]) AND k.role {which} AND w.id <> %(workflow_id)s
     GROUP BY w.id, k.role ORDER BY w.id DESC LIMIT %(limit)s"""


def others_of(workflow: Workflow) -> list[Other]:
    """The other workflows of the same business key that workers have taken up, those that may run first."""
    if workflow.emptied_at:  # its key is deleted, but the history still names the first one
        told = Event.objects.filter(workflow=workflow.pk, kind=Event.Kind.DUPLICATE).values_list("detail__first")
        rows = Workflow.objects.filter(pk__in=[first for (first,) in told if first])
        return [Other(pk, HOLDER, *rest) for pk, *rest in rows.values_list("pk", "status", "last_error_code")]
    hashes = holders.hashes_of(workflow)
    parameters = {"hashes": [each for each, _ in hashes], "workflow_id": workflow.pk, "limit": OTHERS_SHOWN}
    each_kind = [_SAME.format(which=which) for which in ("= 'holder'", "<> 'holder'")] if hashes else []
    return [Other(*row) for sql in each_kind for row in fetch_all(sql, parameters)]
