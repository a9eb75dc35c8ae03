"""The scenes that the demo leaves on the console: submissions with prepared trouble, one of each kind.

The engine meets real trouble: the sandbox refuses, stays silent or cuts the connection for that submission's calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count, zip_longest
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from onboarding.demo.definition import POISON
from onboarding.demo.logins import SECOND_LEAD
from onboarding.demo.report import Effects, Expected, Result
from onboarding.samples import Kind, Sample, sample
from onboarding.services import accounts, tokens, visits
from workflows import operations
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.by_hand import operations as by_hand_calls
from workflows.features.corrections import operations as corrections
from workflows.features.doubts import operations as doubts
from workflows.features.pauses import operations as pauses
from workflows.models import BulkOperation, ManualTask, Service, State, Workflow
from workflows.operations.retrying import ended_at

# Seeds of the scenes' samples, which differ from those of the demo's traffic.
SEEDS = 1000

BULK = "A bulk operation that retried four: two cards are declined again"

LOCKED = "A failure that support can retry: somebody had the patient's profile open, and has closed it"

OUTAGE = {"service": "insurance", "operation": None, "kind": "status", "status": 503}

Fault = Mapping[str, Any]
Who = Callable[[str], User]  # gets the user of a group


@dataclass(frozen=True, slots=True)
class Act:
    """What a user of a group does to the workflow, by its id, when it is in the state `when`."""

    when: State
    do: Callable[[int, Who], object]


@dataclass(frozen=True, slots=True)
class Scene:
    """A submission with its trouble, and its end. `about` says what to look at. `faults` apply only to its calls."""

    about: str
    sample: Sample
    expected: Expected
    faults: tuple[Fault, ...] = ()
    act: Act | None = None

    @property
    def key(self) -> UUID:
        return self.sample.idempotency_key


def retry(workflow: int, who: Who) -> None:
    operations.retry(workflow, user=who("support"), reason="The cause is mended.")


def cancel(workflow: int, who: Who) -> None:
    reason = "Asked for by phone: the patient has moved abroad."
    operations.cancel(workflow, user=who("support lead"), reason=reason)


def assign(workflow: int, who: Who) -> None:
    task = ManualTask.objects.get(workflow=workflow, state=ManualTask.State.OPEN)
    reason = "The patient asks to hear today."
    operations.assign(task.pk, user=who("support lead"), to=who("approver").pk, seen=[], reason=reason)


def correct(workflow: int, who: Who) -> None:
    values = {"address.line1": "12 Mill Lane"}
    if corrections.open_correction(workflow) is None:
        seen, reason = ended_at(Workflow.objects.get(pk=workflow)), "The patient has read it out: the street was wrong."
        corrections.ask(workflow, user=who("support lead"), reason=reason, values=values, seen=seen)
    asked = corrections.open_correction(workflow)
    assert asked is not None
    corrections.approve(workflow, user=who(SECOND_LEAD), values=values, seen=[asked.pk])


def ask_to_correct(workflow: int, who: Who) -> None:
    seen, reason = ended_at(Workflow.objects.get(pk=workflow)), "The patient has spelt it: the city was wrong."
    corrections.ask(workflow, user=who("support lead"), reason=reason, values={"address.city": "Albany"}, seen=seen)


def pause(workflow: int, who: Who, *, lasts: timedelta) -> None:
    reason = "The patient wants to think about it, and calls again."
    pauses.pause(workflow, user=who("support"), reason=reason, until=timezone.now() + lasts)


def do_by_hand(workflow: int, who: Who) -> None:
    """An engineer starts the visit in the visits service, and says so."""
    row = Workflow.objects.get(pk=workflow)
    account = accounts.find_by_email(row.payload["patient"]["email"])
    assert account is not None
    token, program = tokens.issue(account.patient_uuid), row.payload["checkout"]["program"]
    # Under a key of their own: that of the workflow is never sent.
    visit = visits.start(
        account.patient_uuid, program, token=token.access_token.get_secret_value(), idempotency_key=str(uuid4())
    )
    by_hand_calls.say(
        workflow,
        user=who("engineer"),
        reason="Started at the visits service, whose door refused us.",
        reference=str(visit),
        result={"visit_uuid": str(visit)},
        seen=ended_at(row),
    )


def ask_people(workflow: int, who: Who) -> None:
    """A lead wants to say what became of a call, because the worker looks it up in vain."""
    calls = doubts.in_doubt(Workflow.objects.get(pk=workflow))
    seen, reason = [each.call_number or 0 for each in calls], "The patient asks whether the card was charged."
    doubts.ask(workflow, user=who("support lead"), seen=seen, reason=reason)


def retry_together(keys: Sequence[UUID], who: Who) -> None:
    """Retry these by a bulk operation, once all of them have failed; otherwise raise NotAllowed."""
    failed = Workflow.objects.filter(idempotency_key__in=keys, status=Workflow.Status.FAILED)
    if failed.count() < len(keys):
        raise NotAllowed("Not all of them have failed yet.")
    made = bulk.choose("retry", failed.values("pk"), user=who("engineer"), chosen_by="state: Failed")
    bulk.start(made.pk, user=who("engineer"), reason="The profiles service is mended, and the bank answers again.")


def scenes(seed: int) -> list[Scene]:
    """The scenes in the order in which they are sent. The same seed makes the same submissions."""
    seeds = count(seed * SEEDS + 1)

    def new(kind: Kind, *, insured: bool = False) -> Sample:
        """A new sample. The insurance service is down, so only a sample that should wait for it has a policy."""
        return next(found for each in seeds if bool((found := sample(kind, each)).payload["insurance"]) == insured)

    def fault(of: Sample, service: str, operation: str, kind: str, times: int | None, **more: Any) -> Fault:
        strikes = {"idempotency_key": str(of.idempotency_key), "count": times}
        return {"service": service, "operation": operation, "kind": kind, **strikes, **more}

    unclear, reversal, poison = new(Kind.NET_NEW), new(Kind.PROGRAM_FULL), new(Kind.NET_NEW)
    poison.payload[POISON] = True
    twice = replace(unclear, idempotency_key=UUID(int=unclear.idempotency_key.int ^ 1))
    declined, cancelled, retried = new(Kind.CARD_DECLINED), new(Kind.NET_NEW), new(Kind.NET_NEW)
    corrected, mended = new(Kind.NET_NEW), [new(Kind.NET_NEW) for _ in range(2)]
    together = [*(new(Kind.CARD_DECLINED) for _ in range(2)), *mended]
    keys = [each.idempotency_key for each in together]
    wanted, by_hand, charged = new(Kind.NET_NEW), new(Kind.NET_NEW), new(Kind.NET_NEW)
    locked = [new(Kind.NET_NEW) for _ in range(3)]
    paused, overdue = new(Kind.NET_NEW), new(Kind.LINKED)
    reviews = [new(Kind.CLINICAL_REVIEW) for _ in range(4)]
    parked = [new(Kind.NET_NEW, insured=True) for _ in range(5)]
    others = [
        Scene(
            "An unclear call: was the visit started? Its answer was lost, and nobody but a person can find out",
            unclear,
            Expected(State.WAITING, "", _up_to(unclear, "visits", "start_visit")),
            # It starts the visit, but the answer is lost.
            (fault(unclear, "visits", "start_visit", "drop_after", 1),),
        ),
        Scene(
            "An unclear charge: its answer was lost, and the payments service refuses to look it up",
            charged,
            Expected(State.WAITING, "", _up_to(charged, "payments", "charge")),
            (
                fault(charged, "payments", "charge", "drop_after", 1),
                fault(charged, "payments", "find_charge", "status", None, status=422),
            ),
            Act(State.RETRYING, ask_people),
        ),
        Scene(
            "A refund that failed three times, and waits for a person",
            reversal,
            Expected(State.COMPENSATING, "program_full", _up_to(reversal, "payments", "charge")),
            (fault(reversal, "payments", "refund", "status", 3, status=422),),
        ),
        Scene(
            "A poison payload: it crashed three workers, and is not tried again",
            poison,
            Expected(State.FAILED, "poison", _up_to(poison, "profiles", "update_personal_information")),
        ),
        Scene(
            "The same patient once more, from a second tab: it waits for what becomes of the first",
            twice,
            Expected(State.WAITING, "", Counter()),
        ),
        *(
            Scene(
                LOCKED,
                each,
                Expected(State.FAILED, "profile_locked", _up_to(each, "profiles", "update_phone_number")),
                (fault(each, "profiles", "update_address", "status", 1, status=409, code="profile_locked"),),
            )
            for each in locked
        ),
        Scene(
            "A card that was declined",
            declined,
            Expected(State.FAILED, declined.code, Counter(declined.effects)),
        ),
        Scene(
            "One that was cancelled after it was charged, and refunded",
            cancelled,
            Expected(State.CANCELLED, "cancelled", _refunded(cancelled)),
            (fault(cancelled, "programs", "enroll", "status", 2, status=503),),
            Act(State.RETRYING, cancel),
        ),
        Scene(
            "One that failed, was retried by support, and is complete",
            retried,
            Expected(State.COMPLETE, "", Counter(retried.effects)),
            (fault(retried, "profiles", "update_address", "status", 1, status=422),),
            Act(State.FAILED, retry),
        ),
        Scene(
            "One whose address two leads corrected, and is complete",
            corrected,
            Expected(State.COMPLETE, "", Counter(corrected.effects)),
            (fault(corrected, "profiles", "update_address", "status", 1, status=422),),
            Act(State.FAILED, correct),
        ),
        Scene(
            "A correction that waits for a second lead, whom the patient has told the city, too: Albany",
            wanted,
            Expected(State.FAILED, "refused", _up_to(wanted, "profiles", "update_phone_number")),
            (fault(wanted, "profiles", "update_address", "status", 1, status=422, code="refused"),),
            Act(State.FAILED, ask_to_correct),
        ),
        Scene(
            "Done by hand: the visit of a patient was started in the visits service",
            by_hand,
            Expected(State.COMPLETE, "", Counter(by_hand.effects) - Counter([("visits", "start_visit")])),
            (fault(by_hand, "visits", "start_visit", "status", 1, status=422, code="refused"),),
            Act(State.FAILED, do_by_hand),
        ),
        Scene(
            "Charged, and paused before the enrolment: the patient thinks it over, and may cancel",
            paused,
            Expected(State.WAITING, "unavailable", _up_to(paused, "payments", "charge")),
            (fault(paused, "programs", "enroll", "status", 1, status=503),),
            Act(State.RETRYING, partial(pause, lasts=timedelta(days=2))),
        ),
        Scene(
            "A pause that is over: somebody has to resume it",
            overdue,
            Expected(State.WAITING, "", Counter()),
            act=Act(State.WAITING, partial(pause, lasts=timedelta(seconds=1))),  # overdue soon
        ),
        *(
            Scene(
                BULK,
                each,
                Expected(State.FAILED if each.code else State.COMPLETE, each.code, Counter(each.effects)),
                (fault(each, "profiles", "update_address", "status", 1, status=422),) if each in mended else (),
                Act(State.FAILED, lambda _, who: retry_together(keys, who)) if each is together[-1] else None,
            )
            for each in together
        ),
        *(
            Scene(
                "Reviews that wait for an approver; one is assigned to demo-approver",
                review,
                Expected(State.WAITING, "", _up_to(review, "visits", "save_questionnaire")),
                act=Act(State.WAITING, assign) if review is reviews[0] else None,
            )
            for review in reviews
        ),
    ]
    waiting = [
        Scene(
            "Parked: the insurance service is down",
            each,
            Expected(State.PARKED, "", _up_to(each, "profiles", "update_address")),
        )
        for each in parked
    ]
    # Alternating, because a circuit opens by votes that are some seconds apart.
    return [scene for pair in zip_longest(others, waiting) for scene in pair if scene]


def sights(played: Sequence[Scene], found: Mapping[UUID, Result]) -> Iterator[tuple[str, str]]:
    """What to look at, with its page: first the whole, then each scene."""
    yield "Whether all is well, and why not", reverse("admin:index")
    yield "What is for you", reverse("admin:needs_a_person")
    yield (
        "Two releases among the workers, as in the midst of a deploy",
        reverse("admin:workflows_workerprocess_changelist"),
    )
    if Service.objects.filter(name="visits").exists():
        yield "The story of the visits service, which was down", _service("visits")
    firsts: dict[str, Scene] = {}
    for scene in played:
        firsts.setdefault(scene.about, scene)
    for about, first in firsts.items():
        if first.expected.state == State.PARKED:
            yield about, _service(str(OUTAGE["service"]))
        elif about == BULK and (last := BulkOperation.objects.exclude(state="draft").order_by("-pk").first()):
            yield about, reverse("admin:workflows_bulkoperation_change", args=[last.pk])
        elif first.sample.needs_review:
            yield about, f"{reverse('admin:workflows_manualtask_changelist')}?whose=all&kind=task"
        else:
            yield about, reverse("admin:workflows_workflow_change", args=[found[first.key].id])


def _service(name: str) -> str:
    return reverse("admin:workflows_service_change", args=[name])


def _up_to(of: Sample, service: str, operation: str) -> Effects:
    """What a sample changes downstream, up to and including an operation."""
    return Counter(of.effects[: of.effects.index((service, operation)) + 1])


def _refunded(of: Sample) -> Effects:
    return _up_to(of, "payments", "charge") + Counter([("payments", "refund")])
