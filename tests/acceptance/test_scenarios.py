"""The other processes of the articles, in real worker processes: orders, loans, insurance batches, tissue analyses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import IntegrityError
from pytest_django import Settings

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts, now
from tests.acceptance.test_signals import deliver
from tests.processes import Runworker, environment, is_stopped, until
from tests.scenarios import services
from tests.scenarios.loan_approval import ONE_APPROVER
from tests.servers import gunicorn
from workflows import inbox, operations
from workflows.checks import check_definitions
from workflows.definition import definitions
from workflows.errors import NotAllowed
from workflows.ingress import webhooks
from workflows.models import Attempt, ManualTask, Signal, State, Wait, Workflow

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]

ORDER_FULFILMENT = "tests.scenarios.order_fulfilment.ORDER_FULFILMENT"
LOAN_APPROVAL = "tests.scenarios.loan_approval.LOAN_APPROVAL"
INSURANCE_BATCH = "tests.scenarios.insurance_verification.INSURANCE_BATCH"
VERIFICATION = "tests.scenarios.insurance_verification.VERIFICATION"
TISSUE_ANALYSIS = "tests.scenarios.tissue_analysis.TISSUE_ANALYSIS"
ALL = [ORDER_FULFILMENT, LOAN_APPROVAL, INSURANCE_BATCH, VERIFICATION, TISSUE_ANALYSIS]


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the services were asked, and did. The workers inherit where it is."""
    path = tmp_path / "services"
    path.touch()
    monkeypatch.setenv("SCENARIOS_LOG", str(path))
    return path


def done(about: str | None = None) -> list[str]:
    """What the services have done, about somebody or at all, in the order they did."""
    return [entry["done"] for entry in services.entries() if "done" in entry and about in (None, entry["about"])]


def requests() -> Counter[str]:
    """How often the services were asked, by idempotency key."""
    return Counter(entry["key"] for entry in services.entries() if "asked" in entry)


def state(workflow: Workflow) -> State:
    return State(Workflow.objects.with_state().get(pk=workflow.pk).state)


def until_it(is_in: State, workflow: Workflow, worker: Runworker, *, seconds: float = 30) -> Workflow:
    """The row as it is when it has come to that state."""

    def found() -> bool:
        return state(workflow) == is_in

    def what() -> str:
        row = now(workflow)
        return f"{state(row)} {row.current_step} {row.waiting_for} {row.last_error_message}\n{worker.output}"

    until(found, seconds=seconds, what=what)
    return now(workflow)


def test_the_definitions_pass_the_checks_without_a_word(settings: Settings) -> None:
    settings.WORKFLOWS = ALL
    definitions.cache_clear()
    try:
        assert check_definitions() == []
    finally:
        definitions.cache_clear()


# --- Order fulfilment ---------------------------------------------------------------------------------


def an_order(number: str = "A-1", address: str = "Pier 4") -> Workflow:
    return engine.submit({"order": number, "address": address}, workflow_type="order_fulfilment", linking_id=number)


def payment(outcome: str, order: Workflow, *, charge: str = "") -> bool:
    """What the payment service tells of a charge: by the order's number, for it knows nothing of workflows."""
    charge = charge or now(order).context["charge_id"]
    return inbox.send(
        source="payments",
        dedupe_key=str(uuid4()),
        name=f"payment.{outcome}",
        linking_id=order.payload["order"],
        payload={"charge_id": charge},
    )


def test_an_order_is_shipped_when_its_payment_is_confirmed_by_a_webhook(runworker: Start, tmp_path: Path) -> None:
    order, worker = an_order(), runworker(ORDER_FULFILMENT)
    waiting = until_it(State.WAITING, order, worker)
    assert waiting.waiting_for == "the payment service's word"
    assert done() == ["reserve", "charge"]
    (wait,) = Wait.objects.all()
    assert wait.deadline - wait.created_at == pytest.approx(timedelta(minutes=15), abs=timedelta(seconds=1))

    told = {"name": "payment.confirmed", "linking_id": "A-1", "payload": {"charge_id": waiting.context["charge_id"]}}
    with gunicorn("config.wsgi", tmp_path) as console:
        assert deliver(console, webhooks.create("payments"), told, source="payments") == (202, {"replayed": False})
    complete = until_it(State.COMPLETE, order, worker)
    assert complete.context["parcel_id"]
    assert done() == ["reserve", "charge", "ship", "confirm"]
    assert set(requests().values()) == {1}
    assert attempts(order) == ["waiting", "complete"]


def test_a_shipment_that_cannot_be_is_paid_back_and_then_released(runworker: Start) -> None:
    order, worker = an_order(address="nowhere"), runworker(ORDER_FULFILMENT)
    until_it(State.WAITING, order, worker)
    payment("confirmed", order)
    failed = until_it(State.FAILED, order, worker)
    assert failed.last_error_code == "no_such_address"
    assert done() == ["reserve", "charge", "refund", "release"]
    assert set(requests().values()) == {1}


def test_a_payment_that_failed_gives_the_goods_back(runworker: Start) -> None:
    order, worker = an_order(), runworker(ORDER_FULFILMENT)
    until_it(State.WAITING, order, worker)
    payment("failed", order)
    payment("confirmed", order)  # too late: the first of the two decides
    assert until_it(State.FAILED, order, worker).last_error_code == "payment_failed"
    assert done() == ["reserve", "charge", "refund", "release"]


def test_a_payment_that_is_never_confirmed_gives_the_goods_back(runworker: Start) -> None:
    order, worker = an_order(), runworker(ORDER_FULFILMENT)
    until_it(State.WAITING, order, worker)
    engine.expire(order)
    failed = until_it(State.FAILED, order, worker)
    assert failed.last_error_code == "wait_expired"
    assert done() == ["reserve", "charge", "refund", "release"]
    assert set(requests().values()) == {1}

    payment("confirmed", order)  # long after, of a charge that was paid back
    operations.retry(order.pk, user=User.objects.create_superuser("ada"), reason="They say that they have paid.")
    until_it(State.WAITING, order, worker)
    assert done() == ["reserve", "charge", "refund", "release", "reserve", "charge"], "nothing is shipped unpaid"
    payment("confirmed", order)
    until_it(State.COMPLETE, order, worker)


def test_an_order_that_is_tried_again_is_charged_and_confirmed_anew(runworker: Start) -> None:
    """The word on a charge that was paid back says nothing of the next one."""
    order, worker = an_order(address="nowhere"), runworker(ORDER_FULFILMENT)
    until_it(State.WAITING, order, worker)
    payment("confirmed", order)
    until_it(State.FAILED, order, worker)
    operations.retry(order.pk, user=User.objects.create_superuser("ada"), reason="They go there now.")
    until_it(State.WAITING, order, worker)
    assert done() == ["reserve", "charge", "refund", "release", "reserve", "charge"]
    payment("failed", order)
    until_it(State.FAILED, order, worker)
    assert done() == ["reserve", "charge", "refund", "release"] * 2
    assert set(requests().values()) == {1}


# --- Loan approval ------------------------------------------------------------------------------------


@pytest.fixture
def underwriters(transactional_db: None) -> dict[str, User]:
    team = Group.objects.create(name="underwriters")
    people = {name: User.objects.create_superuser(name) for name in ("ada", "ben")}
    team.user_set.add(*people.values())
    return people


def a_loan(amount: int) -> Workflow:
    return engine.submit({"customer": "C-7", "amount": amount}, workflow_type="loan_approval")


def asked(loan: Workflow, task_type: str, worker: Runworker) -> ManualTask:
    """The question, when it has been put."""
    tasks = ManualTask.objects.open().filter(workflow=loan, task_type=task_type)
    return until(tasks.first, what=lambda: f"{now(loan).last_error_message}\n{worker.output}")


def test_a_large_loan_needs_two_people(runworker: Start, underwriters: dict[str, User]) -> None:
    loan, worker = a_loan(50_000), runworker(LOAN_APPROVAL)
    terms = asked(loan, "loan_terms", worker)
    assert (terms.team, dict(terms.facts)["Requested"]) == ("underwriters", "$50,000")
    assert terms.due_at is not None
    assert terms.due_at < terms.expires_at
    answer = {"amount": 40_000, "conditions": "A guarantor."}
    operations.approve(terms.pk, user=underwriters["ada"], reason="Steady income.", answer=answer)

    confirmation = asked(loan, "loan_confirmation", worker)
    assert dict(confirmation.facts)["Amount"] == "$40,000"
    # Whether an operation says so or the table: nothing of it is stored.
    with pytest.raises((NotAllowed, IntegrityError)):
        operations.approve(confirmation.pk, user=underwriters["ada"])
    confirmation.refresh_from_db()
    assert (confirmation.state, Signal.objects.filter(name=confirmation.signal_name).exists()) == ("open", False)
    assert done() == []

    operations.approve(confirmation.pk, user=underwriters["ben"])
    paid = until_it(State.COMPLETE, loan, worker)
    assert (paid.context["amount"], paid.context["conditions"]) == (40_000, "A guarantor.")
    assert (paid.context["approved_by"], paid.context["confirmed_by"]) == ("ada", "ben")
    assert [entry["amount"] for entry in services.entries() if entry.get("done") == "pay_out"] == [40_000]


def test_a_small_loan_needs_one(runworker: Start, underwriters: dict[str, User]) -> None:
    """Small is what is approved, whatever was asked for."""
    loan, worker = a_loan(ONE_APPROVER * 2), runworker(LOAN_APPROVAL)
    task = asked(loan, "loan_terms", worker)
    operations.approve(task.pk, user=underwriters["ada"], answer={"amount": ONE_APPROVER})
    paid = until_it(State.COMPLETE, loan, worker)
    assert (paid.context["amount"], paid.context["confirmed_by"]) == (ONE_APPROVER, None)
    assert done() == ["pay_out"]


def test_a_rejected_loan_fails_with_the_reason(runworker: Start, underwriters: dict[str, User]) -> None:
    loan, worker = a_loan(50_000), runworker(LOAN_APPROVAL)
    operations.approve(asked(loan, "loan_terms", worker).pk, user=underwriters["ada"], answer={"amount": 50_000})
    operations.reject(asked(loan, "loan_confirmation", worker).pk, user=underwriters["ben"], reason="Too much.")
    failed = until_it(State.FAILED, loan, worker)
    assert failed.last_error_code == "approval_rejected"
    assert failed.last_error_message.endswith("Rejected by ben: Too much.")
    assert done() == []


def test_a_loan_that_nobody_decides_fails(runworker: Start, underwriters: dict[str, User]) -> None:
    loan, worker = a_loan(500), runworker(LOAN_APPROVAL)
    task = asked(loan, "loan_terms", worker)
    until_it(State.WAITING, loan, worker)
    engine.expire(loan)
    assert until_it(State.FAILED, loan, worker).last_error_code == "approval_expired"
    with pytest.raises(NotAllowed, match="It expired"):
        operations.approve(task.pk, user=underwriters["ada"], answer={"amount": 500})
    assert done() == []


# --- Insurance verification ---------------------------------------------------------------------------

POLICIES, BUSY, UNKNOWN = 500, 40, 5
POOL = 4


def policies() -> list[str]:
    """The busy ones and the unknown ones among the others."""
    kinds = ["busy"] * BUSY + ["unknown"] * UNKNOWN + ["good"] * (POLICIES - BUSY - UNKNOWN)
    return [f"{kinds[n * 7 % POLICIES]}-{n:03}" for n in range(POLICIES)]


@pytest.mark.slow
def test_a_batch_of_insurance_policies(runworker: Start) -> None:
    ada = User.objects.create_superuser("ada")
    batch = engine.submit({"policies": policies()}, workflow_type="insurance_batch")
    parents = runworker(INSURANCE_BATCH, VERIFICATION)
    pool = runworker(INSURANCE_BATCH, VERIFICATION, arguments=("--queue", "verification", "--processes", str(POOL)))
    complete = batch.children.filter(status="COMPLETE")
    until(lambda: complete.count() > POLICIES // 10, seconds=60, what=lambda: parents.output + pool.output)
    unasked, unheard = kill_one(pool, when="asked"), kill_one(pool, when="done")

    task = until(lambda: ManualTask.objects.filter(workflow=batch).first(), seconds=90, what=lambda: what_is_left(pool))
    unknown = sorted(policy for policy in policies() if policy.startswith("unknown"))
    assert (task.task_type, task.facts) == ("triage", [[policy, "unknown_policy"] for policy in unknown])
    operations.approve(task.pk, user=ada, answer={"settle_as": "self_pay"})
    result = until_it(State.COMPLETE, batch, parents).context

    assert (result["verified"], result["triaged_by"]) == (POLICIES - UNKNOWN, "ada")
    verified = Counter(entry["about"] for entry in services.entries() if entry.get("done") == "verify")
    assert verified == Counter(policy for policy in policies() if not policy.startswith("unknown")), "each once"
    assert done().count("self_pay") == 1
    assert 1 < most_at_once() <= POOL
    assert Attempt.objects.filter(outcome="killed").count() == 2
    times = Counter(entry["about"] for entry in services.entries() if "asked" in entry)
    again = {policy for policy in policies() if policy.startswith("busy")} | {unasked}
    assert {policy for policy in policies() if times[policy] > 1} == again
    assert times[unheard] == (2 if unheard in again else 1), "what was done is found, and not asked for again"
    assert len(attempts(batch)) <= 4, "started them, all had ended (told twice at most), was answered"


def kill_one(pool: Runworker, *, when: str) -> str:
    """Kill a worker in the middle of a request, the last line of which is `when`; which policy it was about.

    It is stopped first, so that nothing happens between the look and the kill.
    """

    def killed() -> str:
        victim = pool.children()[0]
        try:
            os.kill(victim, signal.SIGSTOP)
        except ProcessLookupError:  # the one killed before, which its supervisor has just buried
            return ""
        try:
            if not (is_stopped(victim) and services.log_is_free()):  # the one that is stopped may hold the log's lock
                return ""
            *_, last = [entry for entry in services.entries() if entry["pid"] == victim] or [{}]
            if when not in last:
                return ""
            services.note(ended="killed", about=last["about"])
            os.kill(victim, signal.SIGKILL)
            return str(last["about"])
        finally:
            with suppress(ProcessLookupError):  # its supervisor has buried it
                os.kill(victim, signal.SIGCONT)

    return until(killed, what=lambda: pool.output)


def most_at_once() -> int:
    """Of the requests to insurers, by the order of the log's lines."""
    under_way = most = 0
    for entry in services.entries():
        under_way += ("begun" in entry) - ("ended" in entry)
        most = max(most, under_way)
    assert under_way == 0
    return most


def what_is_left(worker: Runworker) -> str:
    left = Workflow.objects.filter(status="PENDING").values_list("pk", "workflow_type", "waiting_for", "retry_count")
    return f"{len(left)} left: {list(left[:10])}\n{worker.output}"


# --- Tissue analysis ----------------------------------------------------------------------------------

JOBS = ["upload", "tiles", "prediction", "annotations", "report"]


class Jobs:
    """The process that runs the jobs, and how often it reports their ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def begin(self, reports: dict[str, int]) -> None:
        (self.folder / "reports").write_text(json.dumps(reports))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.scenarios.job_runner"],
            cwd=settings.BASE_DIR,
            env={**environment(), "DJANGO_SETTINGS_MODULE": "config.settings"},
        )

    def end(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    folder = tmp_path / "jobs"
    folder.mkdir()
    monkeypatch.setenv("SCENARIOS_JOBS", str(folder))
    runner = Jobs(folder)
    yield runner
    runner.end()


def an_analysis(image: str = "slide-1") -> Workflow:
    return engine.submit({"image": image}, workflow_type="tissue_analysis")


def ran() -> Counter[tuple[int, str]]:
    return Counter((entry["about"], entry["ran"]) for entry in services.entries() if "ran" in entry)


def test_tissue_analyses_end_whatever_becomes_of_the_reports(runworker: Start, jobs: Jobs) -> None:
    analyses = [an_analysis(f"slide-{n}") for n in range(12)]
    # Of each analysis one report is lost, one told twice, and one twice and then in a message of its own.
    reports = {}
    for n, analysis in enumerate(analyses):
        for times, place in ((0, n), (2, n + 1), (3, n + 2)):
            reports[f"{JOBS[place % len(JOBS)]} for {analysis.pk}"] = times
    jobs.begin(reports)
    worker = runworker(TISSUE_ANALYSIS, arguments=("--processes", "2"))
    for analysis in analyses:
        complete = until_it(State.COMPLETE, analysis, worker)
        image = analysis.payload["image"]
        assert complete.context["report"] == f"report of annotations of prediction of tiles of upload of {image}"
    assert ran() == Counter({(analysis.pk, job): 1 for analysis in analyses for job in JOBS})
    assert set(requests().values()) == {1}
    # 0, 1, 2 and 3 reports are so many signals. Some come after the end: of what was found by looking.
    stored = {0: 0, 1: 1, 2: 1, 3: 2}
    expected = Counter(
        {f"{job} for {a.pk}": stored[reports.get(f"{job} for {a.pk}", 1)] for a in analyses for job in JOBS}
    )
    until(lambda: told() == +expected, what=told)


def told() -> Counter[str]:
    """How many signals there are about each job."""
    signals = Signal.objects.values_list("name", "workflow_id")
    return Counter(f"{name.removesuffix('.ended')} for {workflow}" for name, workflow in signals)


def test_a_job_that_fails_fails_the_analysis(runworker: Start, jobs: Jobs) -> None:
    analysis = an_analysis("unreadable")
    jobs.begin({})
    failed = until_it(State.FAILED, analysis, runworker(TISSUE_ANALYSIS))
    assert (failed.last_error_code, failed.current_step) == ("unreadable", "await_upload")
    assert ran() == {(analysis.pk, "upload"): 1}
