"""Correct and retry, from the page where somebody sees the failure to its end: two people, and a real worker."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from onboarding.samples import Kind, sample
from tests.console.conftest import Open
from tests.console.people import WithKeyboard, WithMouse
from tests.console.scenes import of
from tests.onboarding.conftest import sandbox, sandbox_process
from tests.processes import Runworker
from tests.sandbox_process import SandboxProcess
from workflows.models import Correction, Workflow

__all__ = ["sandbox", "sandbox_process"]


def test_two_people_correct_a_typo_and_see_it_finish(open_as: Open, sandbox: SandboxProcess, tmp_path: Path) -> None:
    """The patient has an account, and mistyped its address: it is not found."""
    made = sample(Kind.EXISTING, seed=uuid4().int)
    sandbox.account(**made.account or {})
    right = made.payload["patient"]["email"]
    typo = right.replace("example", "exmaple")
    made.payload["patient"]["email"] = typo
    row = Workflow.objects.create(
        workflow_type="onboarding", idempotency_key=made.idempotency_key, payload=made.payload
    )
    log, definitions = tmp_path / "worker.log", ("onboarding.workflow.ONBOARDING",)
    worker = Runworker(log, definitions, (), SERVICES_URL=sandbox.url)
    try:
        engineer = WithMouse(open_as("engineer", of(row)))
        engineer.page.wait_for_selector("#live[data-at-rest=yes]", timeout=60_000)
        assert engineer.reads("There is no account with this e-mail address")
        engineer.follow("Correct and retry")
        engineer.write("E-mail", right)
        engineer.write("Reason", "The patient spelt it on the phone.")
        engineer.press(f"Ask to correct workflow {row.pk}")
        assert engineer.reads("some-engineer asks for a correction: E-mail from")
        assert engineer.reads("You have asked for it yourself: another user approves it.")
        assert engineer.page.locator(".button-primary").count() == 0, "not even a retry"

        lead = WithKeyboard(open_as("support lead", "/admin/needs-a-person/"))
        lead.follow("Correction to approve: E-mail")
        assert lead.page.locator(".button-primary").all_inner_texts() == ["Approve the correction"]
        lead.follow("Approve the correction")
        assert lead.reads("starts again from the first step")
        assert not lead.reads(right)
        lead.write("E-mail", right)
        lead.press(f"Correct and retry workflow {row.pk}")
        lead.page.wait_for_selector("#live[data-at-rest=yes]", timeout=60_000)
        assert lead.reads("Complete since")
        assert lead.reads("Corrected: E-mail, at")
        for each in (right, typo):
            assert each not in lead.page.content() + engineer.page.content()
    finally:
        worker.kill()
    row.refresh_from_db()
    assert (row.status, row.payload["patient"]["email"]) == ("COMPLETE", right)
    assert sandbox.effects_of(row.key) == list(made.effects)
    assert Correction.objects.get().proposed is None
