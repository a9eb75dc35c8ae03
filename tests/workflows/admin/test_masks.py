"""What of a submission staff see: what the definition calls public, parts of some values, and masks for all else."""

from __future__ import annotations

from typing import Any

import pytest

from onboarding.samples import Kind, sample
from onboarding.workflow import ONBOARDING
from tests.engine import Context
from tests.workflows import rows
from tests.workflows.admin.conftest import Login
from workflows.definition import WorkflowDefinition
from workflows.telling.patient import caller, sent
from workflows.telling.words import MASK, masked_fields
from workflows.wording import CallerField, Wording


def shown(data: Any, *public: str, **parts: Any) -> dict[str, str]:
    return dict(masked_fields(data, public, parts))


def test_a_value_is_shown_where_the_definition_calls_it_public() -> None:
    data = {"program": "body", "patient": {"name": "Zebulon", "sex": "male"}, "checkout": {"plan": "monthly"}}
    assert shown(data, "program", "checkout.plan") == {
        "program": "body",
        "patient.name": MASK,
        "patient.sex": MASK,
        "checkout.plan": "monthly",
    }


def test_of_a_public_object_all_is_shown_that_is_in_it() -> None:
    data = {"checkout": {"plan": "monthly", "addons": ["a", "b"], "gift": True, "note": None, "price": {"cents": 5}}}
    assert shown(data, "checkout") == {
        "checkout.plan": "monthly",
        "checkout.addons": "a, b",
        "checkout.gift": "yes",
        "checkout.note": "not given",
        "checkout.price.cents": "5",
    }


def test_a_name_that_the_sender_made_up_is_not_shown_nor_what_is_below_it() -> None:
    made_up = "(a name that is not shown)"
    data = {"checkout": {"zeb@example.com": "Zebulon", "Zebulon": {"plan": "Zebulon"}}, "checkout.plan": "Zebulon"}
    assert set(masked_fields(data, ["checkout", "checkout.plan"])) == {
        (f"checkout.{made_up}", MASK),
        (f"checkout.{made_up}.plan", MASK),
        (made_up, MASK),
    }


def test_a_list_of_more_than_plain_values_is_masked() -> None:
    assert shown({"items": [{"Zebulon": 1}], "tags": [["Zebulon"]], "none": []}, "items", "tags", "none") == {
        "items": MASK,
        "tags": MASK,
        "none": "none",
    }


def test_a_long_text_is_cut_and_so_is_a_long_list_of_fields() -> None:
    assert shown({"plan": "x" * 101}, "plan") == {"plan": "x" * 100 + "…"}
    fields = masked_fields({f"f{number}": number for number in range(1000)})
    assert (len(fields), fields[-1]) == (101, ("…", "more fields"))


def test_a_long_part_is_cut_in_the_strip_of_the_caller_too() -> None:
    wording = Wording(caller=[CallerField("Plan", "plan", str)])
    definition = WorkflowDefinition(name="x", steps=[], context_class=Context, wording=wording)
    assert caller(definition, {"plan": "x" * 101}) == [("Plan", "x" * 100 + "…")]
    assert masked_fields({"plan": "x" * 101}, (), {"plan": str}) == [("plan", "x" * 100 + "…")]


@pytest.mark.parametrize("value", [None, "", [], {}, True, ["Zebulon"], {"name": "Zebulon"}])
def test_a_part_is_made_of_texts_and_numbers_only(value: Any) -> None:
    assert set(masked_fields({"name": value}, (), {"name": str})) <= {("name", MASK), ("name.name", MASK)}
    assert masked_fields({"name": "Zebulon"}, (), {"name": lambda name: f"{name[0]}•••"}) == [("name", "Z•••")]


@pytest.mark.parametrize("value", [None, "", [], {}, False, ["Zebulon"], {"name": "Zebulon"}])
def test_a_caller_is_verified_by_texts_and_numbers_only(value: Any) -> None:
    wording = Wording(caller=[CallerField("Name", "name", str)])
    definition = WorkflowDefinition(name="x", steps=[], context_class=Context, wording=wording)
    assert caller(definition, {"name": value}) == []
    assert len(caller(definition, {"name": "Zebulon"})) == 1


def test_of_a_type_that_this_release_does_not_know_nothing_is_shown() -> None:
    assert sent(None, {"program": "body"}) == [("program", MASK)]


def test_an_onboarding_shows_what_it_is_about_and_parts_by_which_a_caller_is_verified(as_: Login) -> None:
    payload = sample(Kind.NET_NEW).payload
    payload["checkout"]["note"] = "Zebulon"  # what a website sends beside what we know
    fields = dict(sent(ONBOARDING, payload))
    assert fields["authentication_mode"] == "net_new"
    assert fields["checkout.program"] == payload["checkout"]["program"]
    assert fields["checkout.amount_cents"] == str(payload["checkout"]["amount_cents"])
    assert fields["preferences.sms"] in ("yes", "no")
    assert fields["patient.phone"] == f"ending {payload['patient']['phone'][-2:]}"
    assert fields["checkout.note"] == fields["patient.password"] == fields["patient.first_name"] == MASK
    row = rows.workflow(workflow_type="onboarding", payload=payload)
    html = as_("support").get(f"/admin/workflows/workflow/{row.pk}/change/").content.decode()
    assert f"<dt>checkout.plan</dt><dd>{payload['checkout']['plan']}</dd>" in html
    assert "personal values masked" in html
    assert "Zebulon" not in html
