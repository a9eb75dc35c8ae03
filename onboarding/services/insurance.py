"""Insurance: a patient's policy, and whether it covers the program."""

from __future__ import annotations

from uuid import UUID

from onboarding.services.http import Confirmation, Service

insurance = Service("insurance")
# It asks the payer, who can be out while policies are saved.
verification = Service("insurance", circuit="insurance verification")


def save(patient: UUID, *, payer: str, member_id: str, group_number: str | None, idempotency_key: str) -> None:
    insurance.change(
        "save_insurance",
        "PUT",
        f"/patients/{patient}/policy",
        body={"payer": payer, "member_id": member_id, "group_number": group_number},
        idempotency_key=idempotency_key,
        answer=Confirmation,
    )


def verify(patient: UUID, program: str, *, idempotency_key: str) -> None:
    """Ask the payer to confirm that the saved policy covers a program. StepError `insurance_not_eligible` if not."""
    verification.change(
        "verify_insurance",
        "POST",
        f"/patients/{patient}/verifications",
        body={"program": program},
        idempotency_key=idempotency_key,
        answer=Confirmation,
    )
