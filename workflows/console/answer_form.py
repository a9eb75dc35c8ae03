"""The form of an answer: the fields of an approval besides yes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.forms.utils import ErrorDict
from pydantic import AliasChoices, BaseModel, ValidationError

from workflows.console.answer_fields import JsonField, field_of
from workflows.operations import answer_models
from workflows.postgres.jsonb import Unstorable, ensure_storable
from workflows.wording import Wording, label_of_result, of_person

# The verb of `features.doubts`: it happened, and is to be reversed.
SAY_WHETHER = "Say whether it happened"


class YesForm(forms.Form):
    """The fields of an approval besides yes; if they are valid, `answer` has them. No field has a preset value.

    Without `asked`, for a rejection, the form shows what was typed and validates nothing. `conditional` fields may be
    required, depending on another field, so the page does not call them optional.
    """

    conditional: tuple[str, ...] = ()

    def __init__(self, data: Mapping[str, Any] | None = None, *, asked: bool = True) -> None:
        super().__init__(data, prefix="answer")
        self.asked = asked
        self.answer: dict[str, Any] = {}

    def full_clean(self) -> None:
        if self.asked:
            super().full_clean()
        else:
            self._errors = ErrorDict()
            self.cleaned_data = {}


class AnswerForm(YesForm):
    """The fields of a model, labelled by its titles or by `wording`. An empty field gets the model's default."""

    def __init__(
        self,
        model: type[BaseModel],
        data: Mapping[str, Any] | None = None,
        *,
        asked: bool = True,
        wording: Wording | None = None,
    ) -> None:
        super().__init__(data, asked=asked)
        self.model = model
        self.fields = {name: field_of(info) for name, info in model.model_fields.items()}
        self.examples = wording.examples if wording else {}
        for name, info in model.model_fields.items():
            self.fields[name].label = info.title or label_of_result(wording or Wording(), name)
            if example := self.examples.get(name):
                self.fields[name].help_text = f"{self.fields[name].help_text} For example {example}".strip()

    def clean(self) -> None:
        if self.errors:
            return
        for name, value in [*self.cleaned_data.items()]:
            # It would stand for the real reference, and what follows would fail. A word, or an amount, may be the same.
            is_reference = isinstance(self.fields[name], forms.CharField) and any(map(str.isdigit, str(value)))
            if is_reference and str(value) == self.examples.get(name):
                self.add_error(name, "This is the example. Type what its service shows.")
        if self.errors:
            return
        given = {name: value for name, value in self.cleaned_data.items() if self._is_given(name, value)}
        try:
            self.answer = answer_models.validated(self.model, {self._key(name): value for name, value in given.items()})
        except ValidationError as error:
            self._add_errors(error)
        except (Unstorable, answer_models.AnswerModelBroke) as error:
            self.add_error(None, str(error))

    def _is_given(self, name: str, value: Any) -> bool:
        return value not in (None, "") or self.model.model_fields[name].is_required()

    def _key(self, name: str) -> str:
        """The name under which the model reads the field."""
        alias = self.model.model_fields[name].validation_alias
        offered = alias.choices if isinstance(alias, AliasChoices) else [alias]
        return next((each for each in offered if isinstance(each, str)), name)

    def _add_errors(self, error: ValidationError) -> None:
        names = {self._key(name): name for name in self.fields}
        for fault in error.errors(include_url=False, include_context=False, include_input=False):
            first, *inner = [str(part) for part in fault["loc"]] or [""]
            message = fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            self.add_error(names.get(first), f"{'.'.join(inner)}: {message}" if inner else message)


class ResultForm(YesForm):
    """The result of a call, for a step that does not say which fields it returns."""

    result = JsonField(
        label="Result, if it happened",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text='What the step returned, as a JSON object: {"charge_id": "ch_..."}. {} if it returned nothing.',
    )

    def clean_result(self) -> dict[str, Any]:
        result = self.cleaned_data["result"]
        try:
            if not isinstance(result, dict):
                raise ValueError
            ensure_storable(result)
        except ValueError:
            raise forms.ValidationError("Give a JSON object.") from None
        self.answer = result
        return result


class UndoForm(YesForm):
    """How a person settles a call that could not be undone. `never`: the choice that says it was never made."""

    conditional = ("reference",)
    how = forms.ChoiceField(
        label="What became of it",
        choices=[("undone", "It was reversed by hand"), ("kept", "It stays as it is")],
        widget=forms.RadioSelect,
        error_messages={"required": "Say which."},
        help_text="If it happened and still stands, reverse it there first, and then say so here. After “It stays as "
        "it is” nothing is given back.",
    )
    reference = forms.CharField(
        label="Reference, if it was reversed by hand",
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
        help_text=of_person(
            "What it is found by in the other system: the number of the refund, say. No patient data, please."
        ),
    )

    def __init__(self, data: Mapping[str, Any] | None = None, *, asked: bool = True, never: str = "") -> None:
        super().__init__(data, asked=asked)
        if never:
            how = self.fields["how"]
            assert isinstance(how, forms.ChoiceField)
            how.help_text += f" Or let Onramp reverse it: “{SAY_WHETHER}”, on the page of the workflow."
            how.choices = [*self.declared_fields["how"].choices, ("never", never)]  # type: ignore[attr-defined]

    def clean(self) -> None:
        how, reference = self.cleaned_data.get("how"), self.cleaned_data.get("reference")
        if how == "undone" and not reference and "reference" not in self.errors:
            self.add_error("reference", "What was reversed by hand has a reference in the other system.")
        if how in ("kept", "never") and reference:
            self.add_error("reference", "Only what was reversed by hand has a reference: leave it empty, or say that.")
        self.answer = {"kept": how == "kept", "reference": reference or "", "never_happened": how == "never"}
