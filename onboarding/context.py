"""What the steps of one attempt know so far. Each attempt makes a new one; each field names the step that fills it."""

from __future__ import annotations

from typing import Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from workflows.errors import StepError

T = TypeVar("T")


class OnboardingContext(BaseModel):
    model_config = ConfigDict(validate_assignment=True)

    patient_uuid: UUID | None = None  # create_account, look_up_account or await_linked_account
    # Excluded from dumps, and so from the copy that people read: it gives access to the patient's records, and expires.
    access_token: SecretStr | None = Field(default=None, exclude=True, repr=False)  # exchange_token
    visit_uuid: UUID | None = None  # start_visit
    insurance_verified: bool | None = None  # verify_insurance
    clinical_review_by: str | None = None  # request_clinical_review
    payment_card_id: str | None = None  # attach_payment_card
    charge_id: str | None = None  # execute_checkout
    payment_status: Literal["paid", "payment_due"] | None = None  # execute_checkout
    enrollment_id: str | None = None  # enroll_in_program

    # The same values for steps that need them. One is missing only if the list is in a wrong order.

    @property
    def patient(self) -> UUID:
        return _known(self.patient_uuid, "patient_uuid")

    @property
    def token(self) -> str:
        return _known(self.access_token, "access_token").get_secret_value()

    @property
    def visit(self) -> UUID:
        return _known(self.visit_uuid, "visit_uuid")


def _known(value: T | None, name: str) -> T:
    if value is None:
        raise StepError(f"No earlier step has provided {name}.", code="steps_out_of_order")
    return value
