"""Insurance: a patient's policy, and whether it covers the program."""

from __future__ import annotations

from uuid import UUID

from onboarding.payload import Insurance
from onboarding.services.http import Confirmation, Service

insurance = Service("insurance")
# It asks the payer, which may be down while policies can be saved.
verification = Service("insurance", circuit="insurance verification")


def save(patient: UUID, policy: Insurance, *, idempotency_key: str) -> None:
    path = f"/patients/{patient}/policy"
    insurance.put("save_insurance", path, body=policy.model_dump(), idempotency_key=idempotency_key)


def verify(patient: UUID, program: str, *, idempotency_key: str) -> None:
    """Ask the payer to confirm that the saved policy covers a program. StepError `insurance_not_eligible` if not."""
    verification.change(
        "verify_insurance",
        f"/patients/{patient}/verifications",
        body={"program": program},
        idempotency_key=idempotency_key,
        answer=Confirmation,
    )
