"""The form of an answer is made of its model: a field for each field, errors beside them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from django import forms
from pydantic import AliasChoices, BaseModel, Field, SecretStr, field_serializer, model_validator

from workflows.console.answer_form import AnswerForm, ResultForm, UndoForm, YesForm
from workflows.wording import Wording


class Colour(Enum):
    RED = "red"
    DARK_BLUE = "dark_blue"


class Part(BaseModel):
    name: str


class Everything(BaseModel):
    name: str = Field(title="Full name", description="As on the label.", max_length=20)
    story: str = Field(max_length=2000)
    remark: str = Field(default="", json_schema_extra={"format": "textarea"})
    nested: Annotated[str, Field(max_length=500)] | None = None
    pieces: int = Field(ge=1, le=9)
    weight: float
    price: Decimal
    fragile: bool
    insured: bool | None = None
    rush: bool = True
    sent: date
    arrived: datetime | None = None
    size: Literal["small", "large"]
    level: Literal[1, 2] = 2
    colour: Colour | None = None
    parts: list[Part] = []
    limits: list[Annotated[int, Field(gt=0)]] = Field(default_factory=list)
    anything: Any = None


GIVEN = {
    "name": "Vase",
    "story": "Old.",
    "pieces": "3",
    "weight": "2.5",
    "price": "9.90",
    "fragile": "false",
    "sent": "2026-03-01",
    "size": "small",
    "level": "2",
}


def form(model: type[BaseModel] = Everything, **typed: str) -> AnswerForm:
    return AnswerForm(model, {f"answer-{name}": value for name, value in typed.items()})


def test_labels_help_limits_and_what_is_required_are_the_models() -> None:
    shown = AnswerForm(Everything)
    assert (shown.fields["name"].label, shown.fields["name"].help_text) == ("Full name", "As on the label.")
    assert shown.fields["story"].label == "Story"
    assert 'maxlength="20"' in str(shown["name"])
    assert 'min="1"' in str(shown["pieces"])
    assert 'max="9"' in str(shown["pieces"])
    required = {name for name, field in shown.fields.items() if field.required}
    assert required == {"name", "story", "pieces", "weight", "price", "fragile", "sent", "size"}
    assert " required" in str(shown["name"])
    assert " required" not in str(shown["remark"])


def test_nothing_is_chosen_by_not_looking_and_defaults_are_chosen() -> None:
    shown = AnswerForm(Everything)

    def choices(name: str) -> list[tuple[str, str]]:
        field = shown.fields[name]
        assert isinstance(field, forms.ChoiceField)
        return list(field.choices)

    assert choices("size") == [("", "Choose"), ("small", "Small"), ("large", "Large")]
    assert choices("level") == [("1", "1"), ("2", "2")]
    assert choices("colour") == [("", "Not said"), ("red", "Red"), ("dark_blue", "Dark blue")]
    assert choices("fragile") == [("true", "Yes"), ("false", "No")]
    assert choices("insured") == [("", "Not said"), ("true", "Yes"), ("false", "No")]
    assert "checked" not in str(shown["fragile"])
    assert 'value="true" id="id_answer-rush_0" checked' in str(shown["rush"]).replace("\n", " ")
    assert 'value="2" selected' in str(shown["level"])


class Defaults(BaseModel):
    size: Literal["Small", "Large"] = "Large"
    opens: datetime = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    parts: list[Part] = [Part(name="lid")]


def test_a_default_is_shown_as_its_field_shows_an_answer() -> None:
    shown = AnswerForm(Defaults)
    assert 'value="Large" selected' in str(shown["size"])
    assert 'value="2026-03-01T09:30:00"' in str(shown["opens"])
    assert "{&quot;name&quot;: &quot;lid&quot;}" in str(shown["parts"])


def test_what_is_typed_becomes_the_answer_in_its_json_form() -> None:
    typed = form(**GIVEN, arrived="2026-03-02T10:30", colour="dark_blue", parts='[{"name": "lid"}]', insured="true")
    assert typed.is_valid(), typed.errors
    assert typed.answer == {
        "name": "Vase",
        "story": "Old.",
        "remark": "",
        "nested": None,
        "pieces": 3,
        "weight": 2.5,
        "price": "9.90",
        "fragile": False,
        "insured": True,
        "rush": True,
        "sent": "2026-03-01",
        "arrived": "2026-03-02T10:30:00Z",
        "size": "small",
        "level": 2,
        "colour": "dark_blue",
        "parts": [{"name": "lid"}],
        "limits": [],
        "anything": None,
    }
    assert Everything.model_validate(typed.answer).level == 2


def test_what_is_missing_or_of_another_type_is_told_beside_its_field() -> None:
    typed = form(**{**GIVEN, "name": "", "pieces": "many", "sent": "yesterday", "size": "huge"})
    assert set(typed.errors) == {"name", "pieces", "sent", "size"}
    without = form(**{name: value for name, value in GIVEN.items() if name != "fragile"})
    assert set(without.errors) == {"fragile"}


class Strict(BaseModel):
    first: str = Field(pattern="^[a-z]+$")
    from_: int = Field(alias="from", gt=10)
    parts: list[Part] = []

    @model_validator(mode="after")
    def not_both(self) -> Strict:
        if self.first == "no" and self.from_ == 99:
            raise ValueError("Not both.")
        return self


def test_the_model_has_the_last_word_and_its_faults_are_told_beside_their_fields() -> None:
    typed = form(Strict, first="A1", from_="3", parts='[{"name": 1}, {}]')
    assert typed.errors == {
        "first": ["String should match pattern '^[a-z]+$'"],
        "from_": ["Input should be greater than 10"],
        "parts": ["0.name: Input should be a valid string", "1.name: Field required"],
    }
    assert form(Strict, first="no", from_="99").errors == {"__all__": ["Not both."]}
    good = form(Strict, first="yes", from_="99")
    assert good.is_valid()
    assert good.answer == {"first": "yes", "from": 99, "parts": []}


class Unlike(BaseModel):
    """What it writes is not what it reads."""

    secret: SecretStr
    either: str = Field(validation_alias=AliasChoices("one", "other"))
    renamed: int = Field(validation_alias="read_as", serialization_alias="written_as")
    left_out: str = Field(exclude=True)
    weight: int

    @field_serializer("weight")
    def in_grams(self, weight: int) -> str:
        return f"{weight} g"


def test_what_a_model_writes_otherwise_than_it_reads_is_kept_as_it_was_given() -> None:
    typed = form(Unlike, secret='"hush"', either="way", renamed="7", left_out="here", weight="3")
    assert typed.is_valid(), typed.errors
    assert typed.answer == {"secret": "hush", "one": "way", "read_as": 7, "left_out": "here", "weight": 3}
    read = Unlike.model_validate(typed.answer)
    assert (read.secret.get_secret_value(), read.left_out) == ("hush", "here")


@pytest.mark.parametrize(
    "text", ["{", "[" * 100_000, "9" * 5_000, "[" * 70 + "]" * 70, '"\\u0000"', "NaN", '"\\ud800"']
)
def test_json_that_cannot_be_read_or_kept_is_an_error_of_the_form(text: str) -> None:
    assert not form(**GIVEN, anything=text).is_valid()


def test_of_a_rejection_nothing_is_asked_and_what_was_typed_is_kept() -> None:
    typed = AnswerForm(Everything, {"answer-name": "Vase", "answer-pieces": "many"}, asked=False)
    assert typed.is_valid()
    assert typed.answer == {}
    assert 'value="Vase"' in str(typed["name"])
    assert 'value="many"' in str(typed["pieces"])
    assert not typed.errors


class Listed(BaseModel):
    names: list[str]
    more: dict[str, int] | None = None
    receipt: UUID | None = None


def test_json_is_empty_until_somebody_types_an_empty_list_is_an_answer_and_an_identifier_is_text() -> None:
    assert "null" not in str(AnswerForm(Listed))
    receipt = "6f6d0c5e-4f0a-4b53-9d7e-0c6f1d2a3b4c"
    for typed, kept in ({}, None), ({"receipt": receipt.upper()}, receipt):
        answer = form(Listed, names="[]", more="{}", **typed)
        assert answer.is_valid(), answer.errors
        assert answer.answer == {"names": [], "more": {}, "receipt": kept}
    assert not AnswerForm(Listed, {"answer-names": "null"}).is_valid()


@pytest.mark.parametrize(
    ("asks", "typed", "said"),
    [
        *((ResultForm, {"result": text}, "This field is required.") for text in ("", "null")),
        *((ResultForm, {"result": text}, "Give a JSON object.") for text in ("[]", '"ch_1"', "7")),
        (UndoForm, {}, "Say which."),
        (UndoForm, {"how": "perhaps"}, "Select a valid choice."),
        (UndoForm, {"how": "undone"}, "What was reversed by hand has a reference"),
        (UndoForm, {"how": "kept", "reference": "re-9"}, "Only what was reversed by hand has a reference"),
        (UndoForm, {"how": "never"}, "Select a valid choice."),
    ],
)
def test_of_a_call_what_is_no_answer_is_refused(asks: type[YesForm], typed: dict[str, str], said: str) -> None:
    assert said in str(asks({f"answer-{name}": text for name, text in typed.items()}).errors)


def test_the_example_is_no_answer() -> None:
    """It would stand for the real reference, and what is called next would fail."""
    wording = Wording(examples={"name": "ch_3f9a1c"})
    given = {f"answer-{name}": each for name, each in GIVEN.items()}
    shown = AnswerForm(Everything, {**given, "answer-name": "ch_3f9a1c"}, wording=wording)
    assert shown.errors == {"name": ["This is the example. Type what its service shows."]}
    assert shown.answer == {}
    wording = Wording(examples={"name": "Ada", "size": "small", "pieces": GIVEN["pieces"]})
    shown = AnswerForm(Everything, {**given, "answer-name": "Ada"}, wording=wording)
    assert (shown.errors, shown.answer["name"]) == ({}, "Ada"), "words, choices and numbers may be those of the example"
