"""`manage.py demo`: runs everything on this machine, to see it work."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import FrameType
from typing import Any, NoReturn
from uuid import UUID

import httpx
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django.utils import timezone

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
except ModuleNotFoundError as error:
    raise CommandError("The demo needs more packages: pip install -c constraints.txt '.[debug]'") from error

from onboarding.demo import logins, openid, outages, report, roles, scenes, traffic, week
from onboarding.demo.play import play
from onboarding.demo.processes import DemoError, Processes, ignore_interruptions, require_free_ports
from onboarding.samples import Sample, samples
from workflows.definition import definitions
from workflows.ingress import api_keys, webhooks
from workflows.models import State

# Two releases, as in the middle of a deploy of the workers.
OLD_RELEASE, NEW_RELEASE = "2.3.0", "2.4.0"
TYPES = ["onboarding.demo.definition.DEMO", "onboarding.demo.moving.MOVING"]

# Seconds. Much longer than usual (about 30 s for 300), so that --exit always ends.
PATIENCE = 240.0
PATIENCE_PER_SUBMISSION = 0.5


class Command(BaseCommand):
    help = (
        "Starts the sandbox, the intake, the console, two workers and a relay on this machine, sends realistic "
        "submissions on a day when the services have their troubles, shows what becomes of them, leaves one of each "
        "kind of trouble on the console, with a login for each group, and runs on until Ctrl-C."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--submissions", type=_count, default=300, metavar="N", help="How many (default: 300).")
        parser.add_argument(
            "--week",
            type=_count,
            metavar="N",
            help="How many onboardings the week before had; half as many patients moved (default: 100 at most).",
        )
        parser.add_argument(
            "--exit",
            action="store_true",
            help="End when all is at rest; exit code 0 only if every submission reached the state it should have.",
        )
        parser.add_argument("--workers", type=_count, default=2, metavar="N", help="Worker processes (default: 2).")
        parser.add_argument(
            "--state",
            type=Path,
            default=settings.VAR_DIR / "demo",
            metavar="FOLDER",
            help="Where the logs and what the sandbox remembers are kept (default: var/demo).",
        )
        parser.add_argument(
            "--sso",
            action="store_true",
            help="Sign in by single sign-on, at an OpenID provider that npm fetches once (needs npm; 190 MB).",
        )
        parser.add_argument("--seed", type=int, help="The same seed sends the same submissions; only once a database.")
        for purpose, port in (("intake", 8000), ("console", 8001), ("sandbox", 8100), ("provider", 8002)):
            parser.add_argument(f"--{purpose}-port", type=int, default=port, metavar="PORT", help=f"Default: {port}.")

    def handle(self, *args: Any, **options: Any) -> None:
        if not settings.DEBUG:
            raise CommandError("The demo makes a login and sends made-up patients: it runs with DEBUG=1 only.")
        for number in (signal.SIGTERM, signal.SIGINT):  # SIGINT too: shells start background jobs with it ignored
            signal.signal(number, _interrupt)
        try:
            sound = self.run(options)
        except DemoError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            self.stdout.write("Stopped.")
            return
        if not sound:
            raise CommandError("Not every submission reached the state it should have.")

    def run(self, options: dict[str, Any]) -> bool:
        """Run the demo. True if every submission reached its expected state."""
        screen = Console()
        ports = {purpose: options[f"{purpose}_port"] for purpose in ("intake", "console", "sandbox")}
        sso = {"provider": options["provider_port"]} if options["sso"] else {}
        require_free_ports(ports | sso)
        intake, console, sandbox = (f"http://127.0.0.1:{port}" for port in ports.values())
        state = options["state"]
        seed = options["seed"] if options["seed"] is not None else secrets.randbits(32)
        plan, staged = list(samples(options["submissions"], seed)), scenes.scenes(seed)
        before = week.Week.plan(options["week"] or min(options["submissions"], 100), seed, timezone.now())
        # Because this process does what people do.
        settings.WORKFLOWS, settings.SERVICES = TYPES, {name: f"{sandbox}/{name}" for name in settings.SERVICES}
        definitions.cache_clear()
        settings.OUTBOX_DESTINATIONS = report.destinations(sandbox)  # because this process also cancels workflows
        environment = {
            "SERVICES_URL": sandbox,
            "WORKFLOWS": ",".join(TYPES),
            "OUTBOX_DESTINATIONS": settings.OUTBOX_DESTINATIONS,
            "CONSOLE_URL": console,
            "EMAIL_URL": "",
            "PAYMENTS_SEARCH_URL": f"{sandbox}/_answers/payments/{{key}}",
        }

        if sso:
            screen.print("Looking for npm's OpenID provider, or fetching it.")
        provider = openid.install() if sso else None

        with _database(screen), Processes(state, environment) as processes:
            call_command("migrate", verbosity=0)
            own = roles.environments()
            screen.print(
                "Each process has a role of its own in the database: docs/deployment.md."
                if own
                else "All processes have one role in the database, for this server does not let us make others."
            )
            people, signs_in = logins.make_logins(), {}
            screen.print(logins.table(people, sso=bool(sso)))
            if provider:
                signs_in = openid.start(processes, provider, sso["provider"], console=console, people=people)
                screen.print(openid.break_glass(people, console), highlight=False, soft_wrap=True)
            api_key, secret = api_keys.create("demo"), webhooks.create("accounts")
            connections.close_all()
            screen.print(f"Starting the processes; their logs are in {state}.")
            processes.start(
                "sandbox",
                ["manage.py", "runsandbox", "--port", str(ports["sandbox"]), "--state", str(state / "sandbox")],
                ready=f"{sandbox}/_healthz",
            )
            httpx.delete(f"{sandbox}/_faults").raise_for_status()  # removes those of an earlier demo
            for name, entry in (("intake", "config.intake"), ("console", "config.wsgi")):
                processes.start(
                    name,
                    ["-m", "gunicorn", f"{entry}:application", "--bind", f"127.0.0.1:{ports[name]}"],
                    ready=f"http://127.0.0.1:{ports[name]}/healthz",
                    **own.get(name, {}),
                    **(signs_in if name == "console" else {}),
                )
            old = options["workers"] // 2  # half of them
            (release, number), *later = [
                each for each in ((OLD_RELEASE, old), (NEW_RELEASE, options["workers"] - old)) if each[1]
            ]

            def start_workers(release: str, number: int) -> None:
                command = ["manage.py", "runworker", "--processes", str(number)]
                processes.start(f"workers-{release}", command, RELEASE=release, **own.get("workers", {}))

            began = monotonic()
            start_workers(release, number)
            processes.start("relay", ["manage.py", "relayoutbox"], **own.get("relay", {}))
            of_week: Mapping[UUID, report.Result] = {}
            if week.is_there():
                screen.print("The database has a past already, so no week is made.")
            else:
                screen.print(f"A week passes by, of {len(before.samples)} submissions of two types …")
                of_week = week.pass_by(
                    before,
                    intake=intake,
                    console=console,
                    api_key=api_key,
                    sandbox=sandbox,
                    who=partial(logins.someone, people),
                    check=processes.check,
                )
                screen.print(f"It took {monotonic() - began:.0f} s, and is dated back. Now today, a bad day.")
            for each in later:
                start_workers(*each)

            traffic.arrange(sandbox, plan)
            with traffic.bad_day(sandbox, plan, door=f"{console}/v1/signals/accounts", secret=secret):
                screen.print(f"Sending {len(plan)} submissions, every {traffic.HEDGED_EVERY}th twice at once …")
                began = monotonic()
                stored, replayed = traffic.send_all(intake, api_key, traffic.hedged(plan))
                screen.print(
                    f"{stored} stored in {monotonic() - began:.1f} s; {replayed} duplicates recognised. "
                    "The visits service is about to go down for a while; nobody has to do anything about it."
                )
                expected = self._drain(screen, processes, plan, logins.someone(people, "approver"))
            found = report.results(plan)
            screen.print(report.table(found))
            for sentence in outages.summary(expected, found):
                screen.print(sentence)
            screen.print("Now one of each kind of trouble, to look at …")
            played = play(
                staged,
                intake=intake,
                api_key=api_key,
                sandbox=sandbox,
                who=partial(logins.someone, people),
                check=processes.check,
            )
            expected |= {scene.key: scene.expected for scene in staged}
            expected |= before.expected() if of_week else {}
            effects = report.performed(sandbox)
            faults = report.faults(expected, {**of_week, **found, **played}, effects)
            total = sum(sum(effects[key].values()) for key in expected)
            verdict = "each once, none missing" if not faults else f"{len(faults)} things are wrong"
            screen.print(f"{total} effects performed downstream: {verdict}.")
            for fault in faults[:20]:
                screen.print(f"  {fault}", style="red")
            events = report.told(sandbox)
            screen.print(f"A CRM was told by webhook, {len(events)} times, that an onboarding has ended. The last one:")
            screen.print_json(data=events[-1:])
            screen.print(f"The mail that people get about what waits for them is printed in {state / 'relay.log'}.")
            screen.print("\nWhat there is to look at:")
            for about, page in [*scenes.sights(staged, played), *week.sights(before)]:
                screen.print(f"  {about}\n    {console}{page}", highlight=False, soft_wrap=True)
            if options["exit"]:
                return not faults
            screen.print(
                f"\nThe console: [bold]{console}/admin/[/bold]   login [bold]{people[bool(sso)].name}[/bold]   "
                f"password [bold]{'any' if sso else people[0].password}[/bold]   (the others stand above)\n"
                "The insurance service is down until you mend it; what is parked then goes on by itself:\n"
                f"  curl -X DELETE {sandbox}/_faults\n"
                "Send one more, of a patient without insurance, with\n"
                f"  curl -i {intake}/v1/submissions -H 'Authorization: Bearer {api_key}' \\\n"
                '    -H "Idempotency-Key: $(cat /proc/sys/kernel/random/uuid)" \\\n'
                # A new address each time, because the sandbox keeps its accounts between demos.
                "    -H 'Content-Type: application/json' "
                '-d "$(sed s/ada.alvarez/ada.$(date +%s)/ docs/examples/uninsured.json)"\n'
                "Ctrl-C stops everything.",
                highlight=False,
                soft_wrap=True,
            )
            while True:
                processes.check()
                sleep(1)

    def _drain(
        self, screen: Console, processes: Processes, plan: list[Sample], clinician: User
    ) -> dict[UUID, report.Expected]:
        """Show the progress and decide reviews until all is at rest. Returns what each submission should be."""
        decisions = traffic.plan_reviews(plan)
        expected = {
            sample.idempotency_key: report.expect(sample, decisions.get(sample.idempotency_key)) for sample in plan
        }
        told = outages.Outages()
        patience = monotonic() + PATIENCE + PATIENCE_PER_SUBMISSION * len(plan)
        bar = Progress(
            TextColumn("At rest"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[states]}"),
            console=screen,
        )
        with bar:
            task = bar.add_task("", total=len(plan), states="")
            while True:
                processes.check()
                traffic.review(clinician, decisions)
                found = report.results(plan)
                for sentence in told.news([result.id for result in found.values()]):
                    screen.print(sentence)
                at_rest = sum(report.is_at_rest(found[key], expected[key]) for key in found)
                states = Counter(result.state for result in found.values())
                counts = "  ".join(f"{states[state]} {state.label.lower()}" for state in State if states[state])
                bar.update(task, completed=at_rest, states=counts)
                if at_rest == len(plan):
                    return expected
                if monotonic() > patience:
                    screen.print("Out of patience: not everything has come to rest.", style="red")
                    return expected
                sleep(0.25)


@contextmanager
def _database(screen: Console) -> Iterator[None]:
    """Run the embedded PostgreSQL, if the settings name it; stop it again if it was stopped before."""
    if settings.DATABASES["default"]["ENGINE"] != "config.embedded":
        yield
        return
    embedded = [sys.executable, "-m", "config.embedded"]
    was_running = subprocess.run([*embedded, "status"], check=False, stdout=subprocess.DEVNULL).returncode == 0
    screen.print("Joining PostgreSQL." if was_running else "Starting PostgreSQL.")
    try:
        yield
    finally:
        connections.close_all()
        if not was_running:
            subprocess.run([*embedded, "stop"], check=False, stdout=subprocess.DEVNULL)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    ignore_interruptions()
    raise KeyboardInterrupt


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise ArgumentTypeError(f"{text!r} is not a number from 1 to 100,000")
    return int(text)
