"""What pages call the person whom a workflow is about: the project's word, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse

from tests.servers import ROOT
from tests.workflows.admin.conftest import Login, as_, parcels  # noqa: F401 (fixtures)
from tests.workflows.rows import failed
from workflows.wording import of_person

WORD = re.compile(r"\bpatients?\b", re.IGNORECASE)
# Names in code; a permission's, which a migration has; and texts that are named as a whole where they are shown.
LEFT_OUT = ("'patient'", "Can see a patient's masked values", "CodeWords(staff, patient)", "workflows/console/help.py")


@pytest.mark.parametrize(
    ("word", "text", "said"),
    [
        ("patient", "A patient's card.", "A patient's card."),
        ("customer", "A patient's card, the patients, Patient.", "A customer's card, the customers, Customer."),
        ("applicant", "It takes a patient's money. A patient.", "It takes an applicant's money. An applicant."),
        ("member", "patient.email of patients", "patient.email of members"),
    ],
)
def test_it_stands_in_a_sentence_with_its_article(word: str, text: str, said: str, settings: Any) -> None:
    settings.PERSON_WORD = word
    assert of_person(text) == said


def _said_without() -> Iterator[str]:
    """Texts of the package that say "patient", and do not ask for the project's word."""
    for path in sorted((ROOT / "workflows").rglob("*.py")):
        if "migrations" in path.parts or path.name == "wording.py":
            continue
        tree = ast.parse(path.read_text())
        left_out = {id(each) for node in ast.walk(tree) for each in _no_words(node)}
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and id(node) not in left_out and WORD.search(text):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {text!r}"
    for path in sorted((ROOT / "workflows" / "templates").rglob("*.html")):
        text = re.sub(r"{{.*?}}|{%.*?%}|name=\"patient\"|\?patient=", "", path.read_text())
        yield from (f"{path.name}: {found}" for found in WORD.findall(text))


def _no_words(node: ast.AST) -> Iterator[ast.AST]:
    """Docstrings, and what is given to `of_person`."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
        yield body[0].value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "of_person":
        yield from ast.walk(node)


def test_no_text_says_patient_without_asking_for_the_word() -> None:
    left = [each for each in _said_without() if not any(known in each for known in LEFT_OUT)]
    assert left == []


@pytest.mark.django_db
def test_the_page_of_another_project_says_its_word(as_: Login, settings: Any) -> None:  # noqa: F811
    settings.PERSON_WORD = "reader"
    html = as_("support").get(f"/admin/workflows/workflow/{failed().pk}/change/").content.decode()
    assert "What to tell the reader" in html
    assert "What the words mean" in (told := as_("support").get(reverse("admin:help")).content.decode())
    assert not WORD.search(told)
