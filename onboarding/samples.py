"""Realistic submissions with their expected outcomes, for the demo, tests and people. The same seed makes the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from enum import StrEnum
from itertools import cycle, islice
from typing import Any
from uuid import UUID


class Kind(StrEnum):
    NET_NEW = "net_new"
    EXISTING = "existing"
    LINKED = "linked"
    CLINICAL_REVIEW = "clinical_review"
    CARD_INVALID = "card_invalid"
    CARD_DECLINED = "card_declined"
    INELIGIBLE = "ineligible"
    EMAIL_TAKEN = "email_taken"
    INVALID = "invalid"
    PROGRAM_FULL = "program_full"


@dataclass(frozen=True)
class Sample:
    """A submission, and its expected outcome.

    `account` is the body for the sandbox's POST /_accounts that the submission needs: before it is sent or, for a
    linked one, at any time. `failed_step` and `code` are empty if it completes. `effects`: what the sandbox's log has
    at the end, as (service, operation) in order, once each.
    """

    kind: Kind
    idempotency_key: UUID
    payload: dict[str, Any]
    account: dict[str, Any] | None
    failed_step: str
    code: str
    effects: tuple[tuple[str, str], ...]

    @property
    def status(self) -> str:
        return "FAILED" if self.code else "COMPLETE"

    @property
    def needs_review(self) -> bool:
        """Whether it first waits for a clinician, who should approve it."""
        return self.kind is Kind.CLINICAL_REVIEW


# First one of each, so that a small number has all kinds; then mostly ordinary ones.
MIX = (*Kind, *[Kind.NET_NEW] * 7, *[Kind.EXISTING] * 5, *[Kind.LINKED] * 3, Kind.CLINICAL_REVIEW)

FAILURES = {
    Kind.CARD_DECLINED: ("execute_checkout", "card_declined"),
    Kind.EMAIL_TAKEN: ("validate_duplicate_email", "email_taken"),
    Kind.INVALID: ("validate_payload", "invalid_payload"),
    Kind.PROGRAM_FULL: ("enroll_in_program", "program_full"),
}

# Typical faults of real payloads: a part, and what is wrong in it or replaces it.
SPOILED: list[tuple[str, Any]] = [
    ("patient", {"email": "not an address"}),
    ("patient", {"phone": "202-555-0123"}),
    ("patient", {"date_of_birth": "2090-02-28"}),
    ("address", None),
    ("checkout", {"amount_cents": -1}),
    ("authentication_mode", "guest"),
]


def samples(count: int, seed: int = 1) -> Iterator[Sample]:
    rng = random.Random(seed)  # noqa: S311
    for kind in islice(cycle(MIX), count):
        yield _sample(kind, rng)


def sample(kind: Kind | str, seed: int = 1) -> Sample:
    return _sample(Kind(kind), random.Random(seed))  # noqa: S311


def _sample(kind: Kind, rng: random.Random) -> Sample:
    key = UUID(int=rng.getrandbits(128), version=4)
    payload = _payload(key, rng)
    email = payload["patient"]["email"]
    account: dict[str, Any] | None = None
    match kind:
        case Kind.EXISTING:
            account = {"email": email, "session_token": f"session_{key.hex}"}
            payload |= {"authentication_mode": "existing", "session_token": account["session_token"]}
            del payload["patient"]["password"]
        case Kind.LINKED:
            account = {"email": email, "linking_id": f"link_{key.hex}"}
            payload |= {"authentication_mode": "linked", "linking_id": account["linking_id"]}
            del payload["patient"]["password"]
        case Kind.CLINICAL_REVIEW:
            answers = payload["questionnaire"]["answers"]
            answers |= rng.choice(
                [
                    {"conditions": ["Pancreatitis in 2019"]},
                    {"medications": ["Insulin glargine"]},
                    {"weight_kg": round(24 * (answers["height_cm"] / 100) ** 2)},
                ]
            )
        case Kind.CARD_INVALID:
            payload["payment"]["card_token"] = f"tok_invalid_{key.hex}"
        case Kind.CARD_DECLINED:
            payload["payment"]["card_token"] = f"tok_declined_{key.hex}"
        case Kind.INELIGIBLE:
            payload["insurance"] = {"payer": "Acme Health", "member_id": f"INELIGIBLE{key.hex[:8]}"}
        case Kind.PROGRAM_FULL:
            payload["checkout"]["program"] = "full_body"
        case Kind.EMAIL_TAKEN:
            account = {"email": email}
        case Kind.INVALID:
            part, wrong = rng.choice(SPOILED)
            payload[part] = payload[part] | wrong if isinstance(wrong, dict) else wrong
    failed_step, code = FAILURES.get(kind, ("", ""))
    return Sample(kind, key, payload, account, failed_step, code, tuple(_effects(kind, payload)))


def _payload(key: UUID, rng: random.Random) -> dict[str, Any]:
    sex = rng.choice(["female", "male"])
    first_name = rng.choice(["Ada", "Grace", "Mary", "Rosa", "Nina"] if sex == "female" else ["Alan", "John", "Omar"])
    last_name = rng.choice(["Alvarez", "Brooks", "Chen", "Diaz", "Evans", "Fischer", "O'Neill", "Nguyen", "Okafor"])
    city, state, postal_code = rng.choice(
        [
            ("New York", "NY", "10001"),
            ("Austin", "TX", "73301"),
            ("Denver", "CO", "80202"),
            ("Portland", "OR", "97201"),
            ("Miami", "FL", "33101"),
        ]
    )
    height_cm = rng.randint(152, 195)
    return {
        "authentication_mode": "net_new",
        "patient": {
            "email": f"{first_name}.{last_name}.{key.hex[:10]}@example.com".replace("'", "").lower(),
            "password": f"{rng.getrandbits(64):x}",
            "first_name": first_name,
            "last_name": last_name,
            "date_of_birth": (date(1955, 1, 1) + timedelta(days=rng.randrange(365 * 45))).isoformat(),
            "sex": sex,
            # 555-0100 to 555-0199 belong to nobody, in any area; with one area many would share a number.
            "phone": f"+1{201 + key.int % 780}555{rng.randrange(100, 200):04}",
        },
        "address": {
            "line1": f"{rng.randint(1, 999)} {rng.choice(['Main', 'Oak', 'Maple', 'Lake'])} Street",
            "line2": rng.choice([None, None, f"Apt {rng.randint(1, 40)}"]),
            "city": city,
            "state": state,
            "postal_code": postal_code,
        },
        "insurance": rng.choice(
            [
                None,
                {"payer": "Acme Health", "member_id": f"M{rng.randrange(10**8):08}", "group_number": "G-100"},
                {"payer": "Blue Plains", "member_id": f"M{rng.randrange(10**8):08}", "group_number": None},
            ]
        ),
        "payment": {"card_token": f"tok_{key.hex}", "billing_postal_code": postal_code},
        "questionnaire": {
            "answers": {
                "height_cm": height_cm,
                "weight_kg": round(rng.uniform(29, 42) * (height_cm / 100) ** 2),  # a BMI within the program
                "conditions": rng.choice([[], [], ["high blood pressure"], ["sleep apnea"]]),
                "medications": rng.choice([[], [], ["lisinopril"]]),
                "goal": rng.choice(["feel better", "lose weight", "sleep better"]),
            }
        },
        "checkout": {
            "program": "body",
            **rng.choice([{"plan": "monthly", "amount_cents": 14500}, {"plan": "quarterly", "amount_cents": 39900}]),
            "currency": "usd",
        },
        "preferences": rng.choice([None, {"sms": True, "email": True}, {"sms": False, "email": True}]),
        "identity_verification_id": rng.choice([None, f"idv_{key.hex}"]),
    }


def _effects(kind: Kind, payload: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the submission's downstream changes, in the order of the steps."""
    if kind in (Kind.INVALID, Kind.EMAIL_TAKEN):
        return
    if payload["authentication_mode"] == "net_new":
        yield "accounts", "create_account"
    yield "visits", "start_visit"
    yield "profiles", "update_personal_information"
    yield "profiles", "update_phone_number"
    yield "profiles", "update_address"
    if payload["insurance"]:
        yield "insurance", "save_insurance"
        if kind is not Kind.INELIGIBLE:
            yield "insurance", "verify_insurance"
    yield "visits", "save_questionnaire"
    if kind is not Kind.CARD_INVALID:
        yield "payments", "attach_card"
    yield "payments", "configure_billing"
    if payload["preferences"]:
        yield "messages", "set_communication_preferences"
    if payload["identity_verification_id"]:
        yield "accounts", "link_identity_verification"
    if kind is Kind.CARD_DECLINED:
        return
    if kind is not Kind.CARD_INVALID:
        yield "payments", "charge"
    if kind is Kind.PROGRAM_FULL:
        yield "payments", "refund"
        return
    yield "programs", "enroll"
    yield "messages", "send_confirmation"
