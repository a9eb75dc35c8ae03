from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onboarding.context import OnboardingContext
from onboarding.payload import Answers
from onboarding.samples import Kind, sample
from onboarding.steps import clinical
from workflows.models import Workflow
from workflows.waits import Approval


def answers(**given: Any) -> Answers:
    return Answers(**{"height_cm": 170, "weight_kg": 92, "conditions": [], "medications": []} | given)


def test_a_clinician_is_asked_with_what_they_need_to_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a wait works is for the engine's tests."""
    asked: dict[str, Any] = {}

    def approve(workflow: Workflow, name: str, **question: Any) -> Approval:
        asked.update(question, name=name)
        return Approval(decided_by="dr.grey", reason="")

    monkeypatch.setattr(clinical, "require_approval", approve)
    payload = sample(Kind.NET_NEW).payload
    payload["questionnaire"]["answers"] |= {
        "height_cm": 170,
        "weight_kg": 70.5,
        "conditions": ["Pancreatitis in 2019"],
        "medications": [],
    }
    result = clinical.request_clinical_review(workflow=Workflow(payload=payload), context=OnboardingContext())
    assert result == {"clinical_review_by": "dr.grey"}
    assert asked["name"] == asked["task_type"] == "clinical_review"
    assert asked["timeout"] == timedelta(hours=72)
    facts = asked["facts"]
    assert facts["Why a review"] == "BMI below 27; pancreatitis among the conditions"
    assert facts["BMI"] == "24.4 (170 cm, 70.5 kg)"
    assert (facts["Conditions"], facts["Medications"]) == ("Pancreatitis in 2019", "none")
    assert facts["Age"].isdecimal()


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ({}, []),
        ({"weight_kg": 78.1}, []),
        ({"weight_kg": 78.0}, ["BMI below 27"]),
        ({"conditions": ["high blood pressure", "sleep apnea"]}, []),
        ({"conditions": ["TYPE-1  Diabetes (since 2003)"]}, ["type 1 diabetes among the conditions"]),
        ({"conditions": ["type 2 diabetes"]}, []),
        ({"conditions": ["pregnant"]}, ["pregnant among the conditions"]),
        ({"medications": ["Insulin glargine, 10 units"]}, ["insulin among the medications"]),
        ({"conditions": ["insulin resistance"]}, []),
        ({"medications": ["aspirin"]}, []),
    ],
)
def test_the_rule_for_a_review(given: dict[str, Any], reasons: list[str]) -> None:
    assert clinical.reasons_for_review(answers(**given)) == reasons
