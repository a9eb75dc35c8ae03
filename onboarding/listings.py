"""The listing of each call at its service, for `manage.py reconcile`: the service and its operation."""

from __future__ import annotations

from onboarding.services.http import Service

_OPERATIONS = {
    "create_account": ("accounts", "create_account"),
    "start_visit": ("visits", "start_visit"),
    "update_personal_information": ("profiles", "update_personal_information"),
    "update_phone_number": ("profiles", "update_phone_number"),
    "update_address": ("profiles", "update_address"),
    "save_insurance": ("insurance", "save_insurance"),
    "verify_insurance": ("insurance", "verify_insurance"),
    "attach_payment_card": ("payments", "attach_card"),
    "configure_billing": ("payments", "configure_billing"),
    "set_communication_preferences": ("messages", "set_communication_preferences"),
    "link_identity_verification": ("accounts", "link_identity_verification"),
    "execute_checkout": ("payments", "charge"),
    "undo execute_checkout": ("payments", "refund"),
    "enroll_in_program": ("programs", "enroll"),
    "undo enroll_in_program": ("programs", "withdraw"),
    "send_confirmation": ("messages", "send_confirmation"),
}
LISTINGS = {step: Service(service).listing(operation) for step, (service, operation) in _OPERATIONS.items()}
