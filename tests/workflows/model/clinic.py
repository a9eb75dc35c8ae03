"""A clinic that charges and enrols patients, over HTTP: its services' books, their faults, and its definition."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from inspect import signature
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel

from onboarding.services.http import Service, ServiceAnswer
from workflows.correctable import Correctable
from workflows.definition import Brake, Retry, Step, WorkflowDefinition
from workflows.effects import KnownEffect, key_for
from workflows.errors import StepError
from workflows.models import Workflow
from workflows.search import normalise
from workflows.search.search_keys import SearchKey
from workflows.waits import require_approval
from workflows.wording import CallerField, CodeWords, Money, StepWords, Wording

# What a call meets before it is done: refused (422), an error (500) or no answer (the connection breaks). After it:
# "lost", no answer, and "garbled", one that cannot be read.
BEFORE = ("refused", "broken", "unheard")
AMOUNT = 39900


@dataclass(slots=True)
class Entry:
    """A charge, or an enrolment: its number, for whom it was made, in which turn of the walk, and whether it stands."""

    number: str
    about: list[str]
    turn: int
    stands: bool = True


class Clinic:
    """The services' books, by idempotency key; and which faults the next calls meet."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.books: dict[str, dict[str, Entry]] = {"charge": {}, "enroll": {}}
        self.undone: dict[str, str] = {}  # the numbers of refunds and withdrawals, by what they undo
        self.faults: dict[str, list[str]] = defaultdict(list)
        self.is_down = False
        self.turn = 0

    @property
    def charges(self) -> dict[str, Entry]:
        return self.books["charge"]

    def charges_of(self, workflow: Workflow) -> list[Entry]:
        return [entry for key, entry in self.charges.items() if key.startswith(f"{workflow.idempotency_key}:")]

    def do(self, call: str, key: str, about: str) -> dict[str, Any] | None:
        """What the call returns; None if it is refused."""
        match call:
            case "charge" | "enroll":
                book = self.books[call]
                entry = book.setdefault(key, Entry(f"{call[:2]}_{len(book) + 1}", about.split("|"), self.turn))
                return {"id": entry.number}
            case "refund" | "withdraw":
                book = self.books["charge" if call == "refund" else "enroll"]
                entry = next((each for each in book.values() if each.number == about), None)
                if entry is None or (not entry.stands and self.undone[about] != key):
                    return None
                self.undone[about] = key
                entry.stands = False
                return {"id": f"re_{about}"}
            case "find_charge" | "find_enroll":
                found = self.books[call.removeprefix("find_")].get(key)
                return {"id": found.number if found else ""}
            case "find_refund":
                return {"id": f"re_{about}" if about in self.undone else ""}
        return {"id": "ok"}

    def reverse_by_hand(self, entry: Entry) -> None:
        """A person does it in the service itself, unless it is done."""
        if entry.stands:
            entry.stands, self.undone[entry.number] = False, "by hand"


def _handler(clinic: Clinic) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            self._answer(url.path, query.get("key", [""])[0], query.get("about", [""])[0])

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(self.path, self.headers["Idempotency-Key"], body["about"])

        def _answer(self, path: str, key: str, about: str) -> None:
            call = path.strip("/")
            fault = clinic.faults[call].pop(0) if clinic.faults[call] else ""
            if clinic.is_down or fault == "unheard":
                return self._break()
            if fault in BEFORE:
                return self._say(*((422, {"code": "declined"}) if fault == "refused" else (500, {})))
            done = clinic.do(call, key, about)
            if fault == "lost":
                return self._break()
            if fault == "garbled":
                return self._say(200, ["garbled"])
            return self._say(200, done) if done else self._say(422, {"code": "undone_already"})

        def _say(self, status: int, body: Any) -> None:
            sent = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def _break(self) -> None:
            self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    return Handler


@contextmanager
def serving(clinic: Clinic) -> Iterator[str]:
    """The address at which it is called meanwhile."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(clinic))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


# --- Its definition -----------------------------------------------------------------------------------

BANK, WARD = Service("bank"), Service("ward")


class Patient(BaseModel):
    email: str
    first_name: str
    date_of_birth: str


class Sent(BaseModel):
    patient: Patient
    program: str
    amount: int
    currency: str
    token: str | None = None
    is_reviewed: bool = False


class Context(BaseModel):
    charge_id: str | None = None
    enrollment_id: str | None = None


class Answer(ServiceAnswer):
    id: str


def _change(service: Service, call: str, key: str, about: str = "") -> str:
    return service.change(call, f"/{call}", answer=Answer, body={"about": about}, idempotency_key=key).id


def _find(service: Service, call: str, key: str = "", about: str = "") -> str:
    return service.read(call, f"/{call}", answer=Answer, query={"key": key, "about": about}).id


def _whom(workflow: Workflow) -> str:
    of = workflow.payload["patient"]
    return "|".join([of["email"], workflow.payload["program"], of["first_name"], of["date_of_birth"]])


def check(*, workflow: Workflow, context: Context) -> None:
    sent = Sent.model_validate(workflow.payload)
    if sent.patient.email.endswith("@nowhere"):
        raise StepError("There is no such domain.", code="no_such_domain")


def review(*, workflow: Workflow, context: Context) -> None:
    if workflow.payload["is_reviewed"]:
        require_approval(workflow, "review", question="Is this right for the patient?", timeout=timedelta(days=3))


def charge(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    return {"charge_id": _change(BANK, "charge", key_for(workflow, "charge"), _whom(workflow))}


def refund(*, workflow: Workflow, context: Context, effect: KnownEffect) -> dict[str, Any]:
    return {"refund_id": _change(BANK, "refund", effect.undo_key, (effect.result or {})["charge_id"])}


def find_charge(*, workflow: Workflow, context: Context, effect: KnownEffect) -> Mapping[str, Any] | None:
    found = _find(BANK, "find_charge", effect.idempotency_key)
    return {"charge_id": found} if found else None


def find_refund(*, workflow: Workflow, context: Context, effect: KnownEffect) -> Mapping[str, Any] | None:
    found = _find(BANK, "find_refund", about=(effect.result or {})["charge_id"])
    return {"refund_id": found} if found else None


def enroll(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    return {"enrollment_id": _change(WARD, "enroll", key_for(workflow, "enroll"), _whom(workflow))}


def withdraw(*, workflow: Workflow, context: Context, effect: KnownEffect) -> dict[str, Any]:
    _change(WARD, "withdraw", effect.undo_key, (effect.result or {})["enrollment_id"])
    return {}


def find_enrollment(*, workflow: Workflow, context: Context, effect: KnownEffect) -> Mapping[str, Any] | None:
    found = _find(WARD, "find_enroll", effect.idempotency_key)
    return {"enrollment_id": found} if found else None


def confirm(*, workflow: Workflow, context: Context) -> dict[str, Any]:
    _change(WARD, "confirm", key_for(workflow, "confirm"))
    return {}


WORDING = Wording(
    steps={"charge": StepWords("Charge the card", "Payment"), "enroll": StepWords("Enrol in the program")},
    codes={
        "declined": CodeWords("It was declined.", "It was declined.", asks_nobody=True),
        "no_such_domain": CodeWords("No such domain.", "Your e-mail address is wrong.", asks_nobody=True),
    },
    caller=[CallerField("E-mail", "patient.email", lambda value: f"•••@{value.partition('@')[2]}")],
    money=Money("charge", "amount", "currency", reference="charge_id", refund="refund_id"),
)
SOON = Retry(base_delay=60, max_delay=60, jitter_factor=0, max_attempts=3)
# How a bank may be: one that tells of a charge and of a refund; one whose charges only a person finds; one that gives
# nothing back.
BANKS: dict[str, dict[str, Any]] = {
    "that is asked": {"lookup": find_charge, "undo": refund, "undo_lookup": find_refund},
    "that tells nothing": {"undo": refund},
    "that gives nothing back": {"lookup": find_charge},
}


def definition(bank: str) -> WorkflowDefinition:
    options: dict[str, Any] = {"same_person": ("patient.first_name", "patient.date_of_birth")}
    known = signature(WorkflowDefinition.__init__).parameters
    return WorkflowDefinition(
        name="test",
        steps=[
            check,
            review,
            Step(charge, once=True, settle=0, returns=("charge_id",), **BANKS[bank]),
            Step(enroll, once=True, settle=0, returns=("enrollment_id",), lookup=find_enrollment, undo=withdraw),
            Step(confirm, once=True, settle=0, best_effort=True, key_ttl=timedelta(days=1), returns=(), follow_up=SOON),
        ],
        context_class=Context,
        retry=SOON,
        search_keys={"email": SearchKey("patient.email", normalise.email, only_as_hash=True)},
        business_key=("patient.email", "program"),
        secret_fields=("token",),
        correctable=Correctable(Sent, {f"patient.{field}": () for field in Patient.model_fields}),
        wording=WORDING,
        two_people=True,
        brake=Brake(failures=10_000),
        **{name: value for name, value in options.items() if name in known},
    )
