"""The forms of a page as a browser has them: what is sent when somebody presses a button and has touched nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

Fields = list[tuple[str, str]]

TYPED = frozenset(
    {"hidden", "text", "email", "number", "password", "search", "url", "date", "datetime-local", "tel", "time"}
)


@dataclass(frozen=True, slots=True)
class Button:
    name: str
    value: str
    action: str | None
    label: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Form:
    """`action` is where it goes; `fields` are sent whichever of the `buttons` is pressed."""

    method: str
    action: str
    fields: Fields = field(default_factory=list)
    buttons: list[Button] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sent:
    """A form as it is sent: by a button with that label, or by none (a script can do that) for an empty label."""

    url: str
    label: str
    fields: tuple[tuple[str, str], ...]


def untouched(page: str, html: str) -> Iterator[Sent]:
    """Every way to send each POST form of a page as the page came. `page` is the page's address."""
    for form in forms(html):
        if form.method != "post":
            continue
        if all(each.name for each in form.buttons):
            yield Sent(urljoin(page, form.action or page), "", tuple(form.fields))
        for each in form.buttons:
            named = [(each.name, each.value)] if each.name else []
            label = " ".join("".join(each.label).split()) or each.value
            yield Sent(urljoin(page, each.action or form.action or page), label, (*form.fields, *named))


def forms(html: str) -> list[Form]:
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.forms


class _Parser(HTMLParser):
    """Reads the elements that belong to a form: they stand in it, or a button names it in `form=`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.forms: list[Form] = []
        self.form: Form | None = None
        self.by_id: dict[str, Form] = {}  # a button may come before the form that it names
        self.button: Button | None = None
        self.text: list[str] | None = None  # of a textarea
        self.select: tuple[str, bool, list[tuple[str, bool]]] | None = None  # name, whether several, its options

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.form = self.by_id.setdefault(found.get("id") or f"form {len(self.forms)}", Form("", ""))
            self.form.method, self.form.action = found.get("method", "get").lower(), found.get("action", "")
            self.forms.append(self.form)
        elif "disabled" in found:
            return
        elif "form" in found:
            assert tag == "button", "a field that belongs to a form elsewhere: teach the parser"
            self._field(self.by_id.setdefault(found["form"], Form("", "")), tag, found)
        elif self.form is not None:
            self._field(self.form, tag, found)

    def _field(self, form: Form, tag: str, found: dict[str, str]) -> None:
        name, value = found.get("name", ""), found.get("value", "")
        kind = found.get("type", "text" if tag == "input" else "submit").lower()
        match tag, kind:
            case ("button" | "input", "submit" | "image"):
                self.button = Button(name, value, found.get("formaction"))
                form.buttons.append(self.button)
                if tag == "input":
                    self.button = None
            case "input", "checkbox" | "radio" if "checked" in found:
                form.fields.append((name, found.get("value", "on")))
            case "input", kind if kind in TYPED and name:
                form.fields.append((name, value))
            case "textarea", _:
                form.fields.append((name, ""))
                self.text = []
            case "select", _:
                self.select = (name, "multiple" in found, [])
            case "option", _ if self.select is not None:
                self.select[2].append((value, "selected" in found))

    def handle_data(self, data: str) -> None:
        if self.text is not None:
            self.text.append(data)
        elif self.button is not None:
            self.button.label.append(data)

    def handle_endtag(self, tag: str) -> None:
        match tag:
            case "form":
                self.form = None
            case "button":
                self.button = None
            case "textarea" if self.form is not None and self.text is not None:
                name, _ = self.form.fields[-1]
                self.form.fields[-1] = (name, "".join(self.text).removeprefix("\n"))
                self.text = None
            case "select" if self.form is not None and self.select is not None:
                name, several, options = self.select
                chosen = [value for value, selected in options if selected]
                first = [value for value, _ in options[:1]]  # what a browser shows, and sends
                self.form.fields += [(name, value) for value in (chosen if several else chosen[-1:] or first)]
                self.select = None
