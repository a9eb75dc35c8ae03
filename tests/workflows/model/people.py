"""What people may do, as the console offers it: the verbs of a row's page, and the questions of its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.contrib.auth.models import Permission, User
from django.http import HttpRequest
from django.utils import timezone

from tests.workflows.model.clinic import Clinic, Entry
from workflows import operations
from workflows.console.base import ConsoleAdmin
from workflows.console.verbs import Verb
from workflows.effects.reconcile import DOUBT_TASK_TYPE, effect_in_question
from workflows.engine.undo_doubts import UNDO_TASK_TYPE
from workflows.errors import NotAllowed
from workflows.features.cases import operations as cases
from workflows.features.corrections import operations as corrections
from workflows.features.deferred_steps import operations as deferred_steps
from workflows.features.operator_api import proposals
from workflows.features.operator_api.acts import ACTS, version_of
from workflows.models import ApiKey, Correction, Effect, Erasure, Hold, ManualTask, Proposal, Workflow
from workflows.operations import two_people
from workflows.operations.answer_models import DealtWith

WHY = "Ticket 7."
FIELDS = {
    "patient.email": ["jane@example.com", "jane@exmaple.com"],
    "patient.first_name": ["Jane", "Joan"],
    "patient.date_of_birth": ["1990-01-02", "1990-01-03"],
}


def person(name: str, *permissions: str) -> User:
    """Somebody who may do these things; all of them unless any are named."""
    joined = timezone.now() - timedelta(days=2)
    user = User.objects.create(username=name, email=f"{name}@clinic.example", is_staff=True, date_joined=joined)
    granted = Permission.objects.filter(content_type__app_label="workflows")
    user.user_permissions.set(granted.filter(codename__in=permissions) if permissions else granted)
    return user


def pages(site: Any) -> dict[type[Any], ConsoleAdmin]:
    return {model: site.get_model_admin(model) for model in (Workflow, ManualTask, Hold, Erasure, Proposal)}


def rows_of(page: ConsoleAdmin, user: User) -> list[Any]:
    request = HttpRequest()
    request.user = user
    return list(page.get_queryset(request).order_by("pk"))


Offer = tuple[Verb, Any]


def offered(page: ConsoleAdmin, row: Any, user: User) -> list[Offer]:
    """The verbs on a row's page for this user, with that row; but for those that only show something."""
    possible = (
        []
        if page.why_nothing(row)
        else [each for each in page.verbs if each.applies(row) and each.is_for(user) and not each.shows]
    )
    return [(each, row) for each in possible if not each.why_not(row, user)]


def do(verb: Verb, row: Any, user: User, choice: int) -> str:
    """Do it as the page does; return what became of it. Raises NotAllowed for what the page had offered."""
    told = [str(each) for each in verb.consequences(row)]
    seen = {name: ids_of(row) for name, ids_of in verb.seen}
    arguments = ARGUMENTS.get(verb.slug, lambda row, choice: {"reason": WHY})(row, choice)
    if arguments is None:
        return "the form refuses it"
    try:
        return verb.operation(row.pk, user=user, **arguments, **seen) or verb.done
    except NotAllowed as refusal:
        if any("refused now" in each or each == str(refusal) for each in told):
            return f"the page has said that it would be refused: {refusal}"
        raise


Arguments = dict[str, Any]


def propose(verb: str, row_id: int, key: ApiKey) -> Proposal | None:
    """Ask for it with this key, as its row is now; None if the API says now that this cannot be proposed."""
    assert key.person
    act = ACTS[Proposal.Verb(verb)]
    row = act.find(row_id)
    if row is None or act.why_not(row, key.person) or act.why_not_propose(row, key.person):
        return None
    if Proposal.objects.filter(verb=verb, row=row_id, state="asked").exists():
        return None
    version = version_of(act.seen(row))
    sent: Arguments = {"reason": WHY, "version": version, "idempotency_key": uuid4()}
    return proposals.propose(act.verb, row_id, key=key, user=key.person, **sent)[0]


def _values(row: Workflow, choice: int) -> Arguments | None:
    """A value that the form takes; None if it takes none."""
    each = [{field: value} for field, values in FIELDS.items() for value in values]
    taken = [values for values in each if not corrections.faults(row, values)]
    return {"values": taken[choice % len(taken)], "reason": WHY} if taken else None


def _same_values(row: Workflow, choice: int) -> Arguments:
    return {"values": Correction.objects.open().get(workflow=row.pk).proposed}


def _deferred(row: Workflow, choice: int) -> Arguments:
    return {"step": next(each.name for each in deferred_steps.left_undone(row) if not each.why_not), "reason": WHY}


def _until(row: Any, choice: int) -> Arguments:
    until = getattr(row, "until", timezone.now()) + timedelta(days=10 + 400 * (choice % 2))
    held = {"of_person": choice % 3 == 0} if isinstance(row, Workflow) else {}
    return {"until": until, "reason": WHY, **held}


def _by_hand(row: Workflow, choice: int) -> Arguments | None:
    """An enrolment that its own people have made. Of a charge the bank's book would have to know."""
    if row.current_step != "enroll":
        return None
    return {"reference": "en_hand", "result": {"enrollment_id": f"en_hand_{row.pk}"}, "reason": WHY}


def _pause(row: Workflow, choice: int) -> Arguments | None:
    until = timezone.now() + timedelta(days=1 + choice % 6)
    return None if row.expires_at and until >= row.expires_at else {"until": until, "reason": WHY}


def _team(row: Workflow, choice: int) -> Arguments | None:
    teams = cases.teams()
    return {"team": teams[choice % len(teams)], "reason": WHY} if teams else None


ARGUMENTS: Mapping[str, Callable[[Any, int], Arguments | None]] = {
    "correct": _values,
    "approve_correction": _same_values,
    "follow_up": _deferred,
    "by_hand": _by_hand,
    "pause": _pause,
    "hand_to_team": _team,
    "place_hold": _until,
    "extend": _until,
    "approve": lambda row, choice: {},
    "refuse": lambda row, choice: {"reason": WHY} if isinstance(row, Proposal) else {},
}


# --- Questions ----------------------------------------------------------------------------------------


class Answers:
    """What a person says to a task, knowing the services' books; `is_wrong` once they say what is not so."""

    def __init__(self, clinic: Clinic, task: ManualTask) -> None:
        self.clinic, self.task = clinic, task
        self.is_wrong = False

    def options(self) -> list[tuple[str, Callable[[User], None]]]:
        """What can be answered, in words, and what does it."""
        return [each for each in self._options() if not self._waits(each[0])]

    def _waits(self, words: str) -> bool:
        """Whether somebody has said so, and a second person has to confirm it: the page hides that button."""
        asked = two_people.open_of(self.task.workflow_id, self.task.pk)
        return asked is not None and words not in self._of_one_person()

    def _of_one_person(self) -> set[str]:
        """The answers that move no money again: that it happened, stays, or was reversed by hand."""
        if self.task.task_type == DOUBT_TASK_TYPE:
            return {"what is so"} if self._entry() else {"what is not so"}
        return {"left as it is", "reversed by hand"} if self.task.task_type == UNDO_TASK_TYPE else set()

    def _options(self) -> list[tuple[str, Callable[[User], None]]]:
        if self.task.task_type == DOUBT_TASK_TYPE:
            return list(self._of_a_call())
        if self.task.task_type == UNDO_TASK_TYPE:
            return list(self._of_an_undo())
        return [("yes", self._yes(None)), ("no", self._no)]

    def _of_a_call(self) -> Iterator[tuple[str, Callable[[User], None]]]:
        effect, entry = self._effect(), self._entry()
        field = {"charge": "charge_id", "enroll": "enrollment_id"}.get(effect.step)
        yield "what is so", self._yes({field: entry.number} if field else {}) if entry else self._no
        yield "what is not so", self._wrongly(self._no if entry else self._yes({field: "ch_0"} if field else {}))

    def _of_an_undo(self) -> Iterator[tuple[str, Callable[[User], None]]]:
        entry = self._entry()
        if self._effect().by_hand:
            entry = Entry("by hand", [], self.clinic.turn)  # in no book of the clinic
        yield "try again", self._no
        yield "left as it is", self._yes({"kept": True})
        if entry:
            yield "reversed by hand", self._by_hand(entry)
        elif "never_happened" in DealtWith.model_fields:
            yield "it never happened", self._yes({"kept": False, "never_happened": True})

    def _by_hand(self, entry: Entry) -> Callable[[User], None]:
        def answer(user: User) -> None:
            self.clinic.reverse_by_hand(entry)
            self._yes({"kept": False, "reference": "re_hand"})(user)

        return answer

    def _effect(self) -> Effect:
        step, generation = effect_in_question(self.task.wait.name)
        return Effect.objects.get(workflow=self.task.workflow_id, step=step, generation=generation, undo=False)

    def _entry(self) -> Entry | None:
        effect = self._effect()
        return self.clinic.books.get(effect.step, {}).get(effect.idempotency_key)

    def _yes(self, answer: Mapping[str, Any] | None) -> Callable[[User], None]:
        def approve(user: User) -> None:
            operations.approve(self.task.pk, user=user, reason=WHY, answer=answer)

        return approve

    def _no(self, user: User) -> None:
        operations.reject(self.task.pk, user=user, reason=WHY)

    def _wrongly(self, answer: Callable[[User], None]) -> Callable[[User], None]:
        def lie(user: User) -> None:
            answer(user)
            self.is_wrong = True

        return lie
