"""`manage.py demo`, as `make demo` starts it: on ports of its own and the test database."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import date, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import httpx
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from onboarding.demo import report
from onboarding.samples import Sample, samples
from tests.groups import make_groups
from tests.processes import Runworker, children_of, is_alive, until
from tests.staff.openid import START, Browser, installed
from workflows.models import Event, WorkerProcess, Workflow
from workflows.models.rollup import Grain, Metric, Rollup

PURPOSES = ("intake", "console", "sandbox", "provider")


class Demo(Runworker):
    """The command, with everything that it prints in the file `log`."""

    command = "demo"

    def __init__(self, log: Path, submissions: int, ports: dict[str, int], *more: str) -> None:
        flags = [*more, *(f"--{purpose}-port={port}" for purpose, port in ports.items())]
        definitions = ("onboarding.demo.definition.DEMO",)
        arguments = (f"--submissions={submissions}", *flags)
        super().__init__(log, definitions, arguments, SUBMISSION_WORKFLOW="onboarding")

    def until_it_prints(self, text: str) -> None:
        until(lambda: text in self.output or self.process.poll() is not None, seconds=180, what=lambda: self.output)

    def descendants(self) -> list[int]:
        found = [self.pid]
        for pid in found:
            found += children_of(pid)
        return found[1:]


@pytest.fixture
def ports() -> dict[str, int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in PURPOSES]
        return {purpose: sock.getsockname()[1] for purpose, sock in zip(PURPOSES, sockets, strict=True)}


@pytest.fixture
def start_demo(ports: dict[str, int], tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts a demo of so many submissions; it is ended whatever happens, and its processes with it."""
    started: list[Demo] = []

    def start(submissions: int, *flags: str) -> Demo:
        started.append(Demo(tmp_path / "log", submissions, ports, *flags))
        return started[-1]

    yield start
    for demo in started:
        if demo.process.poll() is None:
            demo.signal(signal.SIGTERM)
            demo.wait(60)


def test_a_port_that_is_taken_is_a_clear_message_before_anything_is_started(
    ports: dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "DEBUG", True)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    flags = [f"--{name}-port={port}" for name, port in ports.items()]
    told = f"(?s)Port {ports['intake']}, for the intake, is taken.*--intake-port"
    with socket.create_server(("127.0.0.1", ports["intake"])), pytest.raises(CommandError, match=told):
        call_command("demo", *flags)
    assert "Starting" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.django_db(transaction=True)
def test_ctrl_c_while_the_queue_drains_ends_all_that_it_has_started(start_demo: Callable[[int], Demo]) -> None:
    demo = start_demo(20)
    demo.until_it_prints("stored in")
    started = demo.descendants()
    assert len(started) > 4  # a sandbox, two gunicorns, a supervisor, and what those have started
    demo.interrupt()
    assert demo.wait(60) == 0
    assert demo.output.rstrip().endswith("Stopped.")
    assert "Traceback" not in demo.output
    assert not [pid for pid in started if is_alive(pid)]


def test_single_sign_on_without_npm_is_a_clear_message_before_anything_is_started(
    ports: dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(settings, "DEBUG", True)
    monkeypatch.setattr(settings, "VAR_DIR", tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match=r"needs npm.*Or leave --sso out"):
        call_command("demo", "--sso", *(f"--{name}-port={port}" for name, port in ports.items()))
    assert "Starting" not in capsys.readouterr().out


@pytest.mark.node
@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.django_db(transaction=True)
def test_with_single_sign_on_a_login_of_the_table_gets_in_with_any_password(
    start_demo: Callable[..., Demo], ports: dict[str, int]
) -> None:
    installed()
    make_groups()
    demo = start_demo(1, "--sso")
    demo.until_it_prints("stored in")
    assert re.search(r"demo-support +│ any, at single sign-on", demo.output)
    console = f"http://127.0.0.1:{ports['console']}"
    browser = Browser(console)
    asked = browser.web.get(f"{console}{START}").headers["Location"]
    browser.web.get(browser.at_provider(asked, "demo-support"))
    assert "demo-support" in browser.web.get(f"{console}/admin/").text
    (link,) = re.findall(rf"{console}/admin/second-factor/link/\S+", demo.output)
    boss = httpx.get(link, follow_redirects=True).text
    assert "Then you set up your second factor" in boss
    demo.interrupt()
    assert demo.wait(60) == 0


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.django_db(transaction=True)
def test_it_runs_to_the_end_and_says_how_to_send_one_more_that_completes(start_demo: Callable[[int], Demo]) -> None:
    make_groups()
    demo = start_demo(9)
    demo.until_it_prints("Ctrl-C stops everything.")
    assert "each once, none missing" in demo.output
    assert {"onramp_intake", "onramp_worker", "onramp_console"} <= signed_in(), demo.output
    assert re.search(r"told by webhook, [1-9][0-9]* times.*?workflow\.(completed|failed)", demo.output, re.S)
    assert set(WorkerProcess.objects.filter(stopped_at=None).values_list("release", flat=True)) == {"2.3.0", "2.4.0"}
    the_week_agrees()
    see_the_sights(demo)
    (command,) = re.findall(r"^  curl -i .*?(?=^Ctrl-C)", demo.output, flags=re.M | re.S)
    before = set(Workflow.objects.values_list("pk", flat=True))
    sent = subprocess.run(
        ["bash", "-c", command], cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=30, check=True
    )
    assert "202 Accepted" in sent.stdout
    sent_one = Workflow.objects.exclude(pk__in=before)
    until(lambda: sent_one.get().status == "COMPLETE", what=lambda: sent_one.values())


def the_week_agrees() -> None:
    """The rollup has counted as many, on the same days, as there are rows; and numbers have the order of times."""

    def counted(metric: Metric, **outcome: str) -> Counter[tuple[str, date]]:
        rows = Rollup.objects.filter(grain=Grain.DAY, metric=metric, **outcome)
        found: Counter[tuple[str, date]] = Counter()
        for of_type, at, number in rows.values_list("workflow_type", "at", "count"):
            found[of_type, at.date()] += number
        return found

    def stored(column: str, **only: str) -> Counter[tuple[str, date]]:
        rows = Workflow.objects.filter(**only).values_list("workflow_type", column)
        return Counter((of_type, at.date()) for of_type, at in rows)

    until(lambda: sum(counted(Metric.STARTED).values()) == Workflow.objects.count())
    assert counted(Metric.STARTED) == stored("created_at")
    assert len({day for _, day in stored("created_at")}) > 4
    assert {of_type for of_type, _ in stored("created_at")} == {"onboarding", "address_change"}
    until(lambda: counted(Metric.FINISHED, outcome="complete") == stored("completed_at", status="COMPLETE"))
    past = timezone.now() - timedelta(minutes=10)
    times = list(Workflow.objects.filter(created_at__lt=past).order_by("pk").values_list("created_at", flat=True))
    assert times == sorted(times)
    done = Event.objects.filter(at__lt=past).exclude(actor="")
    assert {"retried", "acknowledged"} <= set(done.values_list("kind", flat=True))


def signed_in() -> set[str]:
    """The roles with sessions in the test database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT usename FROM pg_stat_activity WHERE datname = current_database()")
        return {role for (role,) in cursor.fetchall()}


# What the pages say that the demo leads to; those that are not named here open, too.
SAYS = {
    "An unclear call": "Unclear call: did “Start the visit” happen?",
    "A refund that failed": "Has someone reversed it?",
    "A poison payload": "It crashed three workers in a row",
    "A card that was declined": "The bank declined the card",
    "One that was cancelled": "refunded",
    "One that failed, was retried": "Complete since",
    "Reviews that wait": "demo-approver",
    "An unclear charge": "may have been charged",
    "A failure that support can retry": "patient&#x27;s profile open",
    "One whose address two leads corrected": "Corrected: ",
    "A correction of an address": "Approve the correction",
    "Done by hand": "by hand",
    "Charged, and paused": "It goes on when somebody resumes it.",
    "A pause that is over": "somebody has to resume it.",
    "Trends of a week": "Change of address",
    "An incident": "Change of address: held by demo-engineer",
    "An incident of two days ago": "The profiles team has rolled its release back",
    "A bulk operation": "Failed again",
    "Parked": "insurance",
}


def see_the_sights(demo: Demo) -> None:
    """Sign in with a login of the table, and open each page that is named."""
    passwords = dict(re.findall(r"│ (demo\S*) +│ (\S+) +│", demo.output))
    assert len(passwords) == 8
    links = re.findall(r"^  (.+)\n    (http://\S+/admin/\S*)$", demo.output, flags=re.M)
    assert len(links) >= len(SAYS) + 2
    with httpx.Client(follow_redirects=True, timeout=30) as client:
        sign_in(client, links[0][1], "demo-engineer", passwords["demo-engineer"])
        for about, link in links:
            page = client.get(link)
            assert page.status_code == 200, about
            for said in (said for begins, said in SAYS.items() if about.startswith(begins)):
                assert said in page.text, about


def sign_in(client: httpx.Client, home: str, name: str, password: str) -> None:
    form = client.get(home)
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)[0]
    fields = {"username": name, "password": password, "csrfmiddlewaretoken": token}
    assert client.post(form.url, data=fields).url == home


# --- Whether each submission became what it should have -----------------------------------------


@pytest.fixture
def sample(db: None) -> Sample:
    return next(iter(samples(1, 1)))


def complete(sample: Sample) -> Workflow:
    return Workflow.objects.create(
        idempotency_key=sample.idempotency_key,
        workflow_type="onboarding",
        payload=sample.payload,
        status="COMPLETE",
        completed_at="2030-01-01T00:00:00Z",
    )


def faults(sample: Sample, effects: dict[UUID, report.Effects]) -> list[str]:
    wanted = {sample.idempotency_key: report.expect(sample, None)}
    return report.faults(wanted, report.results([sample]), effects)


def test_it_tells_of_each_submission_that_is_not_as_expected(sample: Sample) -> None:
    key, effects = sample.idempotency_key, Counter(sample.effects)
    assert faults(sample, {}) == [f"{key} was accepted, and is not there."]
    row = complete(sample)
    assert faults(sample, {key: effects, uuid4(): effects}) == []
    first, *rest = sample.effects
    assert faults(sample, {key: Counter([*rest, rest[0]])}) == [
        f"Workflow {row.pk} has not performed {'/'.join(first)}.",
        f"Workflow {row.pk} has performed {'/'.join(rest[0])} 1 times too often.",
    ]
    Workflow.objects.update(status="FAILED", last_error_code="card_declined")
    assert faults(sample, {key: effects}) == [f"Workflow {row.pk} is failed card_declined; it should be complete."]
