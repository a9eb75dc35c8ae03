"""Whether a clinician must look at the answers before the patient may be enrolled.

The rule is an example for a weight-loss program, not medical advice. It is cautious on purpose: a needless review costs
minutes, a missed one may cost a patient's health.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

from onboarding.context import OnboardingContext
from onboarding.payload import Answers, submission_of
from workflows.models import Workflow
from workflows.waits import require_approval

LOWEST_BMI = 27  # the labels of the program's medicines do not cover a lower one
REVIEW_DUE = timedelta(hours=24)  # the patient waits
REVIEW_TIMEOUT = timedelta(hours=72)  # a whole weekend, and the Monday

CONDITIONS = (
    "thyroid cancer",
    "men 2",
    "men2",
    "multiple endocrine neoplasia",
    "pancreatitis",
    "gastroparesis",
    "gallbladder",
    "type 1 diabetes",
    "retinopathy",
    "kidney",
    "eating disorder",
    "anorexia",
    "bulimia",
    "suicidal",
    "suicide",
    "pregnant",
    "pregnancy",
    "breastfeeding",
)
MEDICATIONS = (
    "insulin",
    "glipizide",
    "glimepiride",
    "glyburide",
    "warfarin",
    "semaglutide",
    "liraglutide",
    "tirzepatide",
    "dulaglutide",
    "exenatide",
)


def request_clinical_review(*, workflow: Workflow, context: OnboardingContext) -> dict[str, Any] | None:
    submission = submission_of(workflow)
    answers = submission.questionnaire.answers
    reasons = reasons_for_review(answers)
    if not reasons:
        return None
    approval = require_approval(
        workflow,
        "clinical_review",
        question=f"May this patient be enrolled in the program {submission.checkout.program}?",
        facts={
            "Why a review": "; ".join(reasons),
            "Age": str(_age(submission.patient.date_of_birth)),
            "Sex": submission.patient.sex,
            "BMI": f"{bmi(answers):.1f} ({answers.height_cm:g} cm, {answers.weight_kg:g} kg)",
            "Conditions": ", ".join(answers.conditions) or "none",
            "Medications": ", ".join(answers.medications) or "none",
        },
        task_type="clinical_review",
        due=REVIEW_DUE,
        timeout=REVIEW_TIMEOUT,
    )
    return {"clinical_review_by": approval.decided_by}


def reasons_for_review(answers: Answers) -> list[str]:
    """Why these answers need a clinician, in a clinician's words; empty if they do not."""
    reasons = [f"{condition} among the conditions" for condition in _named(CONDITIONS, answers.conditions)]
    reasons += [f"{medication} among the medications" for medication in _named(MEDICATIONS, answers.medications)]
    if bmi(answers) < LOWEST_BMI:
        reasons.insert(0, f"BMI below {LOWEST_BMI}")
    return reasons


def bmi(answers: Answers) -> float:
    return answers.weight_kg / (answers.height_cm / 100) ** 2


def _named(terms: tuple[str, ...], answers: list[str]) -> list[str]:
    """The terms in the patient's answers, in any spelling: "Type-1 Diabetes"."""
    written = [" ".join(re.findall(r"[a-z0-9]+", answer.casefold())) for answer in answers]
    return [term for term in terms if any(term in answer for answer in written)]


def _age(date_of_birth: date) -> int:
    today = datetime.now(UTC).date()
    return today.year - date_of_birth.year - ((today.month, today.day) < (date_of_birth.month, date_of_birth.day))
