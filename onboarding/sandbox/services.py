"""The rules of the eight services: what each operation needs, stores and answers. No HTTP except a status."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from onboarding.sandbox.store import Store

# Seconds. A patient's token lasts longer than any attempt; a session as long as a person tries things out.
TOKEN_TTL = 3600
SESSION_TTL = 7 * 24 * 3600


class Refused(Exception):
    """The request is answered with a status and a code; nothing was performed."""

    def __init__(self, status: int, code: str, detail: str = "") -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Call:
    """A request to one operation."""

    store: Store
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    idempotency_key: str = ""
    owner: str = ""  # the patient of its token, for operations that need one

    def text(self, name: str) -> str:
        value = self.body.get(name)
        if not isinstance(value, str) or not value:
            raise Refused(400, "malformed", f"{name}: a text is needed")
        return value

    def patient(self) -> str:
        """The patient in the path or in the body, who must have an account."""
        patient = self.path.get("patient") or self.text("patient_uuid")
        if self.owner and self.owner != patient:
            raise Refused(403, "another_patient")
        if self.store.get("account", patient) is None:
            raise Refused(404, "unknown_patient")
        return patient

    def record(self, kind: str, id: str) -> dict[str, Any]:
        record = self.store.get(kind, id)
        if record is None:
            raise Refused(404, f"unknown_{kind}")
        return record


Operation = Callable[[Call], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Route:
    service: str
    operation: str
    method: str
    path: str  # below the service; {names} go to Call.path
    perform: Operation
    changes: bool = True
    token: bool = False  # asks for a token of the patient


# --- accounts ------------------------------------------------------------------------------------


def search_accounts(call: Call) -> dict[str, Any]:
    if "linking_id" in call.body:
        account = call.store.get("linking_id", call.text("linking_id"))
    else:
        account = call.store.get("email", call.text("email").casefold())
    return {"accounts": [account] if account else []}


def create_account(call: Call) -> dict[str, Any]:
    call.text("password")
    return open_account(call.store, email=call.text("email"), reference=call.text("reference"))


def open_account(store: Store, *, email: str, reference: str | None) -> dict[str, Any]:
    if store.get("email", email.casefold()):
        raise Refused(409, "email_taken")
    patient = str(uuid4())
    account = {"patient_uuid": patient, "reference": reference}
    store.put("account", patient, account)
    store.put("email", email.casefold(), account)
    return account


def arrange_account(call: Call) -> dict[str, Any]:
    """Make the account of an existing patient, or as another flow would. Can be repeated for an e-mail address."""
    email = call.text("email")
    account = call.store.get("email", email.casefold()) or open_account(call.store, email=email, reference=None)
    patient = {"patient_uuid": account["patient_uuid"]}
    if "linking_id" in call.body:
        call.store.put("linking_id", call.text("linking_id"), account)
    session_token = call.text("session_token") if "session_token" in call.body else f"session_{uuid4().hex}"
    lifetime = call.body.get("session_expires_in_s", SESSION_TTL)
    if not isinstance(lifetime, int | float):
        raise Refused(400, "malformed", "session_expires_in_s: seconds are needed")
    call.store.put("session", session_token, {**patient, "expires_at": time.time() + lifetime})
    return {**patient, "session_token": session_token}


# --- tokens --------------------------------------------------------------------------------------


def exchange_session(call: Call) -> dict[str, Any]:
    session = call.store.get("session", call.text("session_token"))
    if session is None:
        raise Refused(401, "session_unknown")
    if session["expires_at"] <= time.time():
        raise Refused(401, "session_expired")
    return _token_for(call.store, session["patient_uuid"])


def issue_token(call: Call) -> dict[str, Any]:
    return _token_for(call.store, call.patient())


def _token_for(store: Store, patient: str) -> dict[str, Any]:
    claim = f"{patient}.{int(time.time()) + TOKEN_TTL}"
    return {"patient_uuid": patient, "access_token": f"{claim}.{_signature(store, claim)}", "expires_in": TOKEN_TTL}


def check_token(store: Store, token: str) -> str:
    """Return the token's patient, or refuse it."""
    claim, _, signature = token.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(store, claim).encode()):
        raise Refused(401, "token_invalid")
    patient, _, expires_at = claim.partition(".")
    if int(expires_at) <= time.time():
        raise Refused(401, "token_expired")
    return patient


def _signature(store: Store, claim: str) -> str:
    return hmac.new(store.secret.encode(), claim.encode(), hashlib.sha256).hexdigest()


# --- insurance, visits ---------------------------------------------------------------------------


def verify_insurance(call: Call) -> dict[str, Any]:
    patient = call.patient()
    if call.record("policy", patient)["member_id"].upper().startswith("INELIGIBLE"):
        raise Refused(422, "insurance_not_eligible")
    return {"patient_uuid": patient}


def start_visit(call: Call) -> dict[str, Any]:
    return _new(call, "visit", "visit_uuid", str(uuid4()), program=call.text("program"))


def save_questionnaire(call: Call) -> dict[str, Any]:
    visit = call.record("visit", call.path["visit"])
    if visit["patient_uuid"] != call.owner:
        raise Refused(403, "another_patient")
    answers = call.body.get("answers")
    if not isinstance(answers, dict):
        raise Refused(400, "malformed", "answers: an object is needed")
    call.store.put("questionnaire", visit["visit_uuid"], answers)
    return {"visit_uuid": visit["visit_uuid"], "patient_uuid": visit["patient_uuid"]}


# --- payments ------------------------------------------------------------------------------------


def attach_card(call: Call) -> dict[str, Any]:
    if call.text("card_token").startswith("tok_invalid"):
        raise Refused(422, "card_invalid")
    card = _new(call, "card", "card_id", f"card_{uuid4().hex}", card_token=call.text("card_token"))
    return {"card_id": card["card_id"], "patient_uuid": card["patient_uuid"]}


def charge(call: Call) -> dict[str, Any]:
    patient = call.patient()
    card = call.record("card", call.text("card_id"))
    amount = call.body.get("amount_cents")
    if not isinstance(amount, int) or amount <= 0:
        raise Refused(400, "malformed", "amount_cents: a positive whole number is needed")
    if card["patient_uuid"] != patient:
        raise Refused(403, "another_patient")
    if card["card_token"].startswith("tok_declined"):
        raise Refused(402, "card_declined")
    return _new(
        call, "charge", "charge_id", f"ch_{uuid4().hex}", amount_cents=amount, currency=call.body.get("currency")
    )


def find_charge(call: Call) -> dict[str, Any]:
    return {"charges": _found_by_key(call, "charge")}


def refund(call: Call) -> dict[str, Any]:
    """Refund `amount_cents` of a charge; without it, all that is left."""
    made = call.record("charge", call.text("charge_id"))
    refunds = _refunds_of(call, made["charge_id"])
    left = made["amount_cents"] - sum(each["amount_cents"] for each in refunds)
    amount = call.body.get("amount_cents", left)
    if not left:
        raise Refused(409, "already_refunded")
    if not isinstance(amount, int) or not 0 < amount <= left:
        raise Refused(400, "malformed", f"amount_cents: from 1 to {left}, which is left of the charge")
    given_back = {**made, "refund_id": f"re_{uuid4().hex}", "amount_cents": amount}
    call.store.put("refunds", made["charge_id"], {"refunds": [*refunds, given_back]})
    return given_back


def find_refund(call: Call) -> dict[str, Any]:
    return {"refunds": _refunds_of(call, call.query.get("charge_id", ""))}


def _refunds_of(call: Call, charge_id: str) -> list[dict[str, Any]]:
    kept: dict[str, list[dict[str, Any]]] = call.store.get("refunds", charge_id) or {"refunds": []}
    return kept["refunds"]


# --- programs, messages --------------------------------------------------------------------------


def enroll(call: Call) -> dict[str, Any]:
    if call.body.get("payment_status") not in ("paid", "payment_due"):
        raise Refused(400, "malformed", "payment_status: paid or payment_due")
    if call.text("program").startswith("full_"):
        raise Refused(409, "program_full")
    return _new(
        call,
        "enrollment",
        "enrollment_id",
        f"enr_{uuid4().hex}",
        visit_uuid=call.record("visit", call.text("visit_uuid"))["visit_uuid"],
        program=call.text("program"),
        plan=call.text("plan"),
        payment_status=call.body["payment_status"],
        withdrawn=False,
    )


def find_enrollment(call: Call) -> dict[str, Any]:
    return {"enrollments": _found_by_key(call, "enrollment")}


def withdraw(call: Call) -> dict[str, Any]:
    enrollment = call.record("enrollment", call.text("enrollment_id"))
    if enrollment["withdrawn"]:
        raise Refused(409, "already_withdrawn")
    call.store.put("enrollment", enrollment["enrollment_id"], enrollment | {"withdrawn": True})
    return {"enrollment_id": enrollment["enrollment_id"], "patient_uuid": enrollment["patient_uuid"]}


def find_withdrawal(call: Call) -> dict[str, Any]:
    enrollment = call.store.get("enrollment", call.query.get("enrollment_id", ""))
    return {"withdrawals": [enrollment] if enrollment and enrollment["withdrawn"] else []}


def send_confirmation(call: Call) -> dict[str, Any]:
    return {"message_id": f"msg_{uuid4().hex}", "patient_uuid": call.patient(), "template": call.text("template")}


# --- of every service ----------------------------------------------------------------------------

PAGE = 200  # changes
REFERENCES = ("refund_id", "charge_id", "card_id", "enrollment_id", "visit_uuid", "message_id")


def list_changes(service: str) -> Operation:
    """The changes of one `operation` since a time (in the form of `at`), by page: `after` is the last `next`."""

    def list_some(call: Call) -> dict[str, Any]:
        after = call.query.get("after") or "0"
        if not after.isdecimal():
            raise Refused(400, "malformed", "after: the `next` of the page before is needed")
        made = call.store.changes(
            service, call.query.get("operation", ""), call.query.get("since", ""), int(after), PAGE
        )
        return {
            "changes": [_in_list(**each) for each in made],
            "next": str(made[-1]["id"]) if len(made) == PAGE else "",
        }

    return list_some


def _in_list(*, id: int, key: str, at: str, answer: dict[str, Any]) -> dict[str, Any]:
    reference = next((answer[name] for name in REFERENCES if name in answer), "")
    money = {name: answer[name] for name in ("amount_cents", "currency") if answer.get(name)}
    return {"idempotency_key": key, "at": at, "reference": reference, **money}


# --- shared --------------------------------------------------------------------------------------


def keep(kind: str, *texts: str) -> Operation:
    """An operation that stores the body as the patient's only one of its kind. It needs these texts."""

    def keep_one(call: Call) -> dict[str, Any]:
        call.store.put(kind, call.patient(), {**call.body, **{name: call.text(name) for name in texts}})
        return {"patient_uuid": call.patient()}

    return keep_one


def _new(call: Call, kind: str, id_name: str, id: str, **fields: Any) -> dict[str, Any]:
    """Store one of many that a patient may have. It can be found by its id, and by the call's key."""
    made = {id_name: id, "patient_uuid": call.patient(), **fields}
    call.store.put(kind, id, made)
    call.store.put(f"{kind}_by_key", call.idempotency_key, {"id": id})
    return made


def _found_by_key(call: Call, kind: str) -> list[dict[str, Any]]:
    pointer = call.store.get(f"{kind}_by_key", call.query.get("idempotency_key", ""))
    return [call.record(kind, pointer["id"])] if pointer else []


# fmt: off
ROUTES = [
    Route("accounts", "find_account", "POST", "/accounts/search", search_accounts, changes=False),
    Route("accounts", "create_account", "POST", "/accounts", create_account),
    Route("accounts", "link_identity_verification", "PUT", "/accounts/{patient}/identity-verification",
          keep("identity_verification", "verification_id")),
    Route("tokens", "exchange_session", "POST", "/exchange", exchange_session, changes=False),
    Route("tokens", "issue_token", "POST", "/issue", issue_token, changes=False),
    Route("profiles", "update_personal_information", "PUT", "/patients/{patient}/personal-information",
          keep("personal_information", "first_name", "last_name", "date_of_birth", "sex"), token=True),
    Route("profiles", "update_phone_number", "PUT", "/patients/{patient}/phone", keep("phone", "phone"), token=True),
    Route("profiles", "update_address", "PUT", "/patients/{patient}/address",
          keep("address", "line1", "city", "state", "postal_code"), token=True),
    Route("insurance", "save_insurance", "PUT", "/patients/{patient}/policy", keep("policy", "payer", "member_id")),
    Route("insurance", "verify_insurance", "POST", "/patients/{patient}/verifications", verify_insurance),
    Route("visits", "start_visit", "POST", "/visits", start_visit, token=True),
    Route("visits", "save_questionnaire", "PUT", "/visits/{visit}/questionnaire", save_questionnaire, token=True),
    Route("payments", "attach_card", "POST", "/cards", attach_card),
    Route("payments", "configure_billing", "PUT", "/billing/{patient}",
          keep("billing", "program", "plan", "postal_code")),
    Route("payments", "charge", "POST", "/charges", charge),
    Route("payments", "find_charge", "GET", "/charges", find_charge, changes=False),
    Route("payments", "refund", "POST", "/refunds", refund),
    Route("payments", "find_refund", "GET", "/refunds", find_refund, changes=False),
    Route("programs", "enroll", "POST", "/enrollments", enroll),
    Route("programs", "find_enrollment", "GET", "/enrollments", find_enrollment, changes=False),
    Route("programs", "withdraw", "POST", "/withdrawals", withdraw),
    Route("programs", "find_withdrawal", "GET", "/withdrawals", find_withdrawal, changes=False),
    Route("messages", "set_communication_preferences", "PUT", "/patients/{patient}/preferences",
          keep("preferences")),
    Route("messages", "send_confirmation", "POST", "/messages", send_confirmation),
]
ROUTES += [
    Route(service, "list_changes", "GET", "/changes", list_changes(service), changes=False)
    for service in dict.fromkeys(route.service for route in ROUTES if route.changes)
]
# fmt: on

OPERATIONS: dict[str, frozenset[str]] = {
    service: frozenset(route.operation for route in ROUTES if route.service == service)
    for service in dict.fromkeys(route.service for route in ROUTES)
}
