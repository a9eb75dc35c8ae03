"""MODEL TEST: random operations of people, and faults, over one patient's workflows; after each, what must be true is.

Before a merge each seed walks WALKS times. A failure tells what happened, in plain words, and its seed. For longer
walks, by other seeds, and for the shortest way to a failure (to find it may take five minutes):

    WALKS=500 WALK_SEEDS="7 8" SHRINK=1 make test-all ARGS="tests/workflows/model"
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import hypothesis
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.utils import timezone
from hypothesis import HealthCheck, Phase, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pytest_django import Settings

from tests import engine, postgres
from tests.workflows.model import clock, people, truths
from tests.workflows.model.clinic import AMOUNT, BANKS, Clinic, definition, serving
from workflows import failpoints
from workflows.definition import definitions
from workflows.errors import ClaimLost, NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import telling as bulk_operations
from workflows.features.deputies import operations as deputies
from workflows.ingress import api_keys
from workflows.intake.submissions import enter
from workflows.models import ApiKey, Erasure, Hold, ManualTask, Proposal, Workflow
from workflows.operations import why_not_decide
from workflows.postgres import sqlstates
from workflows.postgres.jsonb import parse
from workflows.testing.run import Crash

pytestmark = engine.ENGINE

STEPS, MOST_SENT, MOST_TURNS, TRIES, COUNT_EVERY = 40, 5, 100, 4, 6
WALKS = int(os.environ.get("WALKS", "20"))
SEEDS = list(map(int, os.environ.get("WALK_SEEDS", "1 2 3").split()))
PHASES = [Phase.generate, *([Phase.shrink] if os.environ.get("SHRINK") else [])]
# Of the submissions: what differs from the first one.
SENT = {
    "the same": {},
    "with another token": {"token": "tok_2"},
    "with another first name": {"first_name": "Joan"},
    "with another date of birth": {"date_of_birth": "1990-01-03"},
    "of another person": {"first_name": "Joan", "date_of_birth": "1990-01-03"},
    "with a typo in its address": {"email": "jane@exmaple.com"},
    "with an address that is none": {"email": "jane@nowhere"},
    "for another program": {"program": "sleep"},
    "to be reviewed": {"is_reviewed": True},
}
# What the next calls meet, each once; the refund is asked about when it was refused three times.
MET = [
    *("charge lost", "charge garbled", "charge broken", "charge refused", "charge lost lost", "find_charge refused"),
    *("enroll refused", "enroll refused", "enroll refused", "enroll lost", "enroll lost", "find_enroll refused"),
    *("refund refused refused refused", "refund lost", "refund lost refused refused", "refund garbled broken"),
    *("withdraw refused refused refused", "find_refund broken", "confirm broken", "find_charge unheard"),
]
BOUNDARIES = [
    *(f"{where}:{call}" for call in ("charge", "enroll", "undo charge") for where in failpoints.BOUNDARIES[:4]),
    *("before_commit", "after_commit"),
]
WAYS = ("dies", "loses its claim", "loses its log")
WAITS = {"an hour": timedelta(hours=1), "a day": timedelta(hours=25), "four months": timedelta(days=120)}
BULK = ("retry", "acknowledge", "cancel")
PERSONS = strategies.sampled_from(["lead", "second", "support"])
numbers = strategies.integers(0, 11)


class Walk(RuleBasedStateMachine):
    """One patient, whose submissions meet faults and people. What happens is told in `story`."""

    clinic: Clinic
    settings: Settings

    def __init__(self) -> None:
        super().__init__()
        postgres.empty_tables()
        with connection.cursor() as cursor:  # so that the numbers are those of the story
            cursor.execute(
                "SELECT setval('workflows_workflow_id_seq', 1, false), setval('workflows_manualtask_id_seq', 1, false)"
            )
        self.clinic.forget()
        self.settings.SEARCH_KEYS = ["key 0"]
        self.story: list[str] = []
        self.checked = self.counted = 0  # how much of the story
        self.lies: dict[int, int] = {}  # the workflow, by the task that was answered wrongly
        self.seen_at: dict[int, int] = {}  # in which turn a person cancelled a workflow, whose charges they saw
        self.lead, self.second = people.person("ada"), people.person("bob")
        self.support = people.person(
            "sam", "view_workflow", "retry_workflow", "run_workflow_now", "cancel_workflow", "acknowledge_workflow"
        )
        api_keys.create_for(self.lead, "Chat")
        self.key = ApiKey.objects.select_related("person").get()
        self.pages = people.pages(admin.site)
        self.keys = 0
        self.misread: list[str] = []  # what a page said, and was not so

    @initialize(bank=strategies.sampled_from(sorted(BANKS)), away=strategies.sampled_from([0, 0, 150]))
    def open(self, bank: str, away: int) -> None:
        engine.DEFINITION = definition(bank)
        definitions.cache_clear()
        self.story.append(f"The bank is one {bank}.")
        if away:
            self._leave_or_come_back(away)
        self.submit("the same")

    @precondition(lambda self: self.keys < MOST_SENT)
    @rule(how=strategies.sampled_from(list(SENT)))
    def submit(self, how: str) -> None:
        self.keys += 1
        changed = SENT[how]
        patient = {"email": "jane@example.com", "first_name": "Jane", "date_of_birth": "1990-01-02"}
        patient |= {name: value for name, value in changed.items() if name in patient}
        sent = {"program": "weight", "amount": AMOUNT, "currency": "usd", "token": "tok_1", "is_reviewed": False}
        sent |= {name: value for name, value in changed.items() if name in sent}
        key = UUID(int=self.keys)
        document = parse(json.dumps({"patient": patient, **sent}).encode())
        entry = enter(definitions()["test"], idempotency_key=key, payload=document, submitted_by="web")
        self._tell(f"A submission arrives, {how}: workflow {entry.id}.")

    # --- Workers, and what they meet ------------------------------------------------------------------

    @rule(met=strategies.lists(strategies.sampled_from(MET), max_size=3))
    def work(self, met: list[str]) -> None:
        """Workers do all that is due, and the next calls meet these faults."""
        for call, *faults in map(str.split, met):
            self.clinic.faults[call] += faults
        self._tell(f"Workers do what is due; the next calls: {', '.join(met) or 'as they come'}.")
        self._work()

    @rule(boundary=strategies.sampled_from(BOUNDARIES), way=strategies.sampled_from(WAYS), then=strategies.booleans())
    def work_and_fall(self, boundary: str, way: str, then: bool) -> None:
        """The worker that gets there first dies, or loses one of its connections; the others go on, or do not yet."""
        self._tell(f"A worker {way} at {boundary}; others {'go on' if then else 'do not come yet'}.")
        fallen: list[str] = []

        def fall() -> None:
            if fallen:
                return
            fallen.append(boundary)
            if way == "dies":
                raise Crash
            engine.terminate("default" if way == "loses its claim" else "attempt_log")

        with failpoints.armed(boundary, fall):
            while self._turn() and (then or not fallen):
                pass
        if then:
            self._work()

    @rule(what=strategies.sampled_from(["services", "search keys", "absence", *WAITS, *BULK]))
    def run_the_place(self, what: str) -> None:
        """What concerns more than one workflow."""
        match what:
            case "services":
                self.clinic.is_down = not self.clinic.is_down
                self._tell(f"The services are {'down' if self.clinic.is_down else 'up again'}.")
            case "search keys":
                self._rotate_search_keys()
            case "absence":
                self._leave_or_come_back()
            case _ if what in WAITS:
                clock.let_pass(WAITS[what])
                self._tell(f"Time passes: {what}. Workers do what is due.")
                self._work()
            case _:
                self._act_in_bulk(what)

    def _leave_or_come_back(self, days: int = 2) -> None:
        """Bob stands in for ada for some days, or not any more."""
        if row := deputies.open_ones().first():
            self._tell(deputies.end(row.pk, user=self.second if self.keys % 2 else self.lead))
        else:
            until = timezone.now() + timedelta(days=days)
            self._tell(deputies.appoint(self.lead.pk, user=self.lead, deputy=self.second.pk, until=until))

    def _rotate_search_keys(self) -> None:
        """A new key goes first; the old ones stay in the setting, for as long as anybody may need them."""
        self.settings.SEARCH_KEYS = [f"key {len(self.settings.SEARCH_KEYS)}", *self.settings.SEARCH_KEYS]
        said = StringIO()
        try:
            call_command("searchkeys", "rotate", stdout=said)
        except CommandError as refusal:
            said.write(str(refusal))
        self._tell(f"The search keys are rotated: {' '.join(said.getvalue().split())}")

    def _work_unless(self, number: int) -> None:
        """Workers mostly come at once."""
        if number % 4:
            self._tell("Workers do what is due.")
            self._work()

    def _work(self) -> None:
        """Until nothing is due; and again when what failed is tried once more, some minutes later."""
        for _ in range(TRIES):
            self._drain()
            engine.do_maintenance()
            self._drain()
            if not Workflow.objects.filter(status="PENDING", waiting_for="", parked_on="").exists():
                return
            clock.let_pass(timedelta(minutes=2))

    def _drain(self) -> None:
        for _ in range(MOST_TURNS):
            if not self._turn():
                return
        raise AssertionError("The workers do not come to rest.")

    def _turn(self) -> bool:
        """One workflow, or one deferred step; a worker that dies or loses its connections is followed by another."""
        worker = engine.worker()
        try:
            return worker.process_next() or worker.process_from_sources()
        except (ClaimLost, *sqlstates.DATABASE_ERRORS):
            connections.close_all()
            return True

    # --- People ---------------------------------------------------------------------------------------

    @rule(row=numbers, verb=numbers, choice=numbers, who=PERSONS)
    def act(self, row: int, verb: int, choice: int, who: str) -> None:
        """A person does one of the things that the page of a workflow offers them."""
        user: User = getattr(self, who)
        if rows := people.rows_of(self.pages[Workflow], user):
            self._act(people.offered(self.pages[Workflow], rows[row % len(rows)], user), verb, choice, user)

    @rule(verb=numbers, choice=numbers, who=PERSONS)
    def act_on_what_was_said(self, verb: int, choice: int, who: str) -> None:
        """The same of an answered task, a legal hold, an erasure that was asked for, or a proposal."""
        user: User = getattr(self, who)
        pages = [self.pages[model] for model in (ManualTask, Hold, Erasure, Proposal)]
        found = [
            each for page in pages for row in people.rows_of(page, user) for each in people.offered(page, row, user)
        ]
        self._act(found, verb, choice, user)

    @rule(row=numbers, choice=numbers, what=strategies.sampled_from(["correct", "ask_erasure"]))
    def two_people_act(self, row: int, choice: int, what: str) -> None:
        """One asks for a correction, or an erasure, and another approves it at once."""
        rows = people.rows_of(self.pages[Workflow], self.lead)
        found = [each for row in rows for each in people.offered(self.pages[Workflow], row, self.lead)]
        self._act([each for each in found if each[0].slug == what], row, choice, self.lead)
        answers = {"correct": (Workflow, "approve_correction"), "ask_erasure": (Erasure, "approve")}
        model, slug = answers[what]
        rows = people.rows_of(self.pages[model], self.second)
        found = [each for row in rows for each in people.offered(self.pages[model], row, self.second)]
        self._act([each for each in found if each[0].slug == slug], 0, choice, self.second)

    @rule(row=numbers, choice=numbers, verb=strategies.sampled_from(["retry", "cancel", "approve", "reject", "bulk"]))
    def a_program_proposes(self, row: int, choice: int, verb: str) -> None:
        """A program with ada's key proposes something, and bob may approve it at once."""
        if verb == "bulk":
            chosen = bulk.choose("retry", Workflow.objects.order_by().values("pk"), user=self.lead, chosen_by="All.")
            ids = [chosen.pk]
        else:
            rows = Workflow.objects.all() if verb in ("retry", "cancel") else ManualTask.objects.open()
            ids = list(rows.order_by("pk").values_list("pk", flat=True))
        if not ids or not (made := people.propose(verb, ids[row % len(ids)], self.key)):
            return
        self._tell(f"A program with the key of ada proposes to {verb} {made.row}.")
        if choice % 2:
            page = self.pages[Proposal]
            mine = [each for each in people.rows_of(page, self.second) if each.pk == made.pk]
            found = [each for row in mine for each in people.offered(page, row, self.second)]
            self._act([each for each in found if each[0].slug == "approve"], 0, choice, self.second)

    def _act(self, found: list[people.Offer], which: int, choice: int, user: User) -> None:
        if not found:
            return
        verb, row = found[which % len(found)]
        what = f"{user} does “{verb.label}” to {row}"
        said = self._offered(what, lambda: people.do(verb, row, user, choice))
        if verb.slug == "cancel" or (verb.slug, getattr(row, "verb", "")) == ("approve", "cancel"):
            self.seen_at[getattr(row, "workflow_id", row.pk)] = self.clinic.turn
        if verb.slug == "take_back":
            self.lies.pop(row.pk, None)
        self._tell(f"{what} ({choice}): {said}")
        self._work_unless(choice)

    @precondition(lambda self: ManualTask.objects.open().exists())
    @rule(task=numbers, answer=numbers, who=strategies.sampled_from(["lead", "second"]))
    def answer(self, task: int, answer: int, who: str) -> None:
        """A person answers an open question."""
        user: User = getattr(self, who)
        rows = list(ManualTask.objects.open().by_the_clock().with_claims().select_related("workflow").order_by("pk"))
        rows = [each for each in rows if not why_not_decide(each, user)]
        if not rows:
            return
        asked = rows[task % len(rows)]
        answers = people.Answers(self.clinic, asked)
        options = answers.options()
        if not options:
            return
        words, give = options[answer % len(options)]
        self._offered(f"{user} answers “{asked.question}”: {words}", lambda: give(user))
        if answers.is_wrong:
            self.lies[asked.pk] = asked.workflow_id
        self._tell(f"{user} answers “{asked.question}” of workflow {asked.workflow_id} (task {asked.pk}): {words}.")
        self._work_unless(answer)

    def _act_in_bulk(self, verb: str) -> None:
        """A lead does it to all workflows at once, and workers carry it out."""
        if not Workflow.objects.exists():
            return
        chosen = bulk.choose(verb, Workflow.objects.order_by().values("pk"), user=self.lead, chosen_by="All.")
        shown = bulk_operations.previewed(chosen, self.lead)
        if bulk_operations.why_not_start(chosen, self.lead):
            return
        if verb == "cancel":
            seen = dict.fromkeys(
                Workflow.objects.filter(status="PENDING").values_list("pk", flat=True), self.clinic.turn
            )
            self.seen_at |= seen
        self._offered(
            f"bulk {verb}", lambda: bulk.start(chosen.pk, user=self.lead, reason=people.WHY, pace=bulk.FASTEST)
        )
        while not bulk.BulkOperation.objects.filter(pk=chosen.pk, state=bulk.State.DONE).exists():
            engine.do_maintenance()
        came = bulk.outcomes(chosen)[chosen.pk]
        self._tell(f"ada does “{verb}” to all workflows; the page says {shown.can}: {came}.")
        if came["done"] != shown.can:
            self.misread.append(f"the preview of “{verb}” says {shown.can}, and {came['done']} are done")
        self._work()

    def _offered(self, what: str, do: Callable[[], Any]) -> Any:
        """Nothing that a page offers is refused."""
        try:
            return do()
        except NotAllowed as refusal:
            raise AssertionError(f"{what}: it was offered, and then refused: {refusal}") from refusal

    # --- What must be true ----------------------------------------------------------------------------

    @invariant()
    def everything_is_true(self) -> None:
        if len(self.story) > self.checked:
            if wrong := list(self._wrong(list(Workflow.objects.with_state().order_by("pk")))):
                raise AssertionError("\n".join(wrong))
            self.checked = len(self.story)

    def _wrong(self, rows: list[Workflow]) -> Iterator[str]:
        yield from self.misread
        misled = set(self.lies.values())
        for row in rows:
            if row.pk not in misled:
                yield from truths.of_money_lines(self.clinic, row)
                yield from truths.of_patients_lines(self.clinic, row)
                yield from truths.of_one_charge(self.clinic, row)
                yield from truths.of_failures(self.clinic, row, self.lead, self.seen_at)
            yield from truths.of_the_turned_away(row, rows)
            yield from truths.of_the_untold(row)
        yield from truths.of_two_people()
        yield from truths.of_one_business(self.clinic, [row for row in rows if row.pk not in misled])
        if len(self.story) - self.counted >= COUNT_EVERY:  # they take longer than all else
            yield from truths.of_counts(self.clinic, rows, self.lead, misled)
            self.counted = len(self.story)

    def _tell(self, what: str) -> None:
        self.clinic.turn += 1
        self.story.append(what)


@pytest.fixture
def clinic(engine: None, settings: Settings) -> Iterator[Clinic]:
    clinic = Clinic()
    with serving(clinic) as url:
        settings.SERVICES = {"bank": url, "ward": url}
        yield clinic


@pytest.mark.parametrize("walk_seed", SEEDS)
def test_whatever_people_and_faults_do_to_one_patient(clinic: Clinic, settings: Settings, walk_seed: int) -> None:
    stories: list[list[str]] = []

    class Seeded(Walk):
        def __init__(self) -> None:
            super().__init__()
            stories.append(self.story)

    Seeded.clinic, Seeded.settings = clinic, settings
    how = hypothesis.settings(
        max_examples=WALKS,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=PHASES,
    )
    try:
        run_state_machine_as_test(hypothesis.seed(walk_seed)(Seeded), settings=how)
    except BaseException as error:
        numbered = [f"{number:3}. {line}" for number, line in enumerate(stories[-1], 1)]
        error.add_note("\n".join([f"Seed {walk_seed}, walk {len(stories)}. What happened:", *numbered]))
        raise
