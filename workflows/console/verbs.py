"""A verb: an operation on a row as a button, and the forms that ask for its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

from django import forms

from workflows.wording import of_person

T = TypeVar("T")

KEPT = of_person("Kept in the history, with your name. No patient data, please.")


def reason_field(help_text: str = KEPT, **options: Any) -> forms.CharField:
    return forms.CharField(max_length=500, widget=forms.Textarea(attrs={"rows": 3}), help_text=help_text, **options)


# More than a team has, and as many as a list can show.
COLLEAGUES_SHOWN = 500
NOTHING: Mapping[int, str] = MappingProxyType({})


def colleague_field(users: Any, help_text: str = "", but: Mapping[int, str] = NOTHING) -> forms.TypedChoiceField:
    """A field to choose one of these users. No user is preselected. Those in `but` come last, with its words."""
    shown = sorted(users.order_by(users.model.USERNAME_FIELD)[:COLLEAGUES_SHOWN], key=lambda user: user.pk in but)
    names = {user.pk: " ".join(filter(None, (user.get_username(), but.get(user.pk)))) for user in shown}
    return forms.TypedChoiceField(
        label="Colleague",
        coerce=int,
        choices=[("", "Choose somebody"), *names.items()],
        widget=forms.Select(attrs={"autofocus": True}),
        help_text=help_text,
    )


class ReasonForm(forms.Form):
    """The form of a verb. `row` is its row, or None for several rows."""

    reason = reason_field()

    def __init__(self, *args: Any, row: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row


class OptionalReasonForm(ReasonForm):
    """The form of a verb that refuses, undoes and answers nothing: the reason is optional."""

    reason = reason_field(f"If there is something to say. {KEPT}", required=False)


class RetryForm(ReasonForm):
    """The usual reasons, and a field for any other."""

    USUAL = ("The cause is mended.", of_person("The patient has asked for it."), "Probably temporary; try once more.")

    why = forms.ChoiceField(
        label="Why",
        choices=[*((usual, usual) for usual in USUAL), ("other", "Another reason")],
        widget=forms.RadioSelect,
    )
    reason = reason_field(label="Another reason", required=False)
    field_order = ("why", "reason")

    def clean(self) -> dict[str, Any]:
        """Only the reason: the chosen one, or the typed one."""
        cleaned = super().clean() or self.cleaned_data
        why, written = cleaned.pop("why", ""), cleaned.get("reason", "").strip()
        if why == "other" and not written:
            self.add_error("reason", "Say why.")
        cleaned["reason"] = written if why == "other" else " ".join(filter(None, (why, written)))
        return cleaned


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """An operation on a row: a button on the row's page, a page that says what will happen, and a POST.

    `applies`: whether the row's state allows it. `why_not`: why this user, who has the permission, may not do it to
    this row; the page says so instead of showing the button. `consequences`: what will happen, in sentences. `done`:
    the message afterwards, unless the operation returns one. `seen`: the operation's arguments for the ids that the
    page showed, so that it can check whether they have changed. `asks`: the page's title, where the label and the row's
    name do not make a sentence; `{}` is that name. `form` asks for the operation's arguments. `dangerous`: it takes
    something away from a patient, and looks like it. `main`: what the row most likely needs; the last one that applies
    is the page's primary button, and the first of all, for those who may use it. `rare`: a link instead of a button.
    `permission`: one of several is enough. `shows`: the answer to the POST shows what the operation returns, with this
    sentence below. `key`: of the keyboard, for its page. `named`: of a row, a name at the end of the label and of
    `asks`.
    """

    slug: str
    label: str
    permission: str | tuple[str, ...]
    operation: Callable[..., Any]
    applies: Callable[[Any], bool]
    consequences: Callable[[Any], Iterable[str]]
    done: str
    seen: tuple[tuple[str, Callable[[Any], list[int]]], ...] = ()
    asks: str = ""
    why_not: Callable[[Any, Any], str] = lambda row, user: ""
    form: type[ReasonForm] = ReasonForm
    dangerous: bool = False
    rare: bool = False
    main: bool | Callable[[Any], bool] = False
    shows: str = ""
    key: str = ""
    named: Callable[[Any], str] | None = None

    def of(self, row: Any) -> Verb:
        """The verb as a page of this row names it."""
        if self.named is None:
            return self
        name = self.named(row)
        return replace(
            self, label=f"{self.label} {name}".strip(), asks=f"{self.asks or f'{self.label} {{}}'} {name}".strip()
        )

    def leads(self, row: Any) -> bool:
        """Whether it may be the row's primary button: none is red."""
        return (self.main(row) if callable(self.main) else self.main) and not self.dangerous

    def is_for(self, user: Any) -> bool:
        permissions = (self.permission,) if isinstance(self.permission, str) else self.permission
        return any(map(user.has_perm, permissions))


def read_once(row: Any, name: str, read: Callable[[], T]) -> T:
    """What `read` returns about a row, kept on the row under this name: it is read once for a page."""
    kept = vars(row)
    if name not in kept:
        kept[name] = read()
    found: T = kept[name]
    return found
