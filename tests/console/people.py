"""Somebody at the console, with a mouse or with the keyboard alone: the same jobs are done by both.

What is typed is free, and so is Enter after it. Counted is what else it takes: clicks of the one, key presses of the
other, who also has to see all the time where the focus is.
"""

from __future__ import annotations

from typing import Any

# What has the focus is in sight, and has a ring around it.
SEEN = """() => {
    const element = document.activeElement, box = element.getBoundingClientRect(), style = getComputedStyle(element);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    const inside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    return ring && inside && element.matches(":focus-visible") && element.checkVisibility({ opacityProperty: true });
}"""

FIELDS = ("INPUT", "SELECT", "TEXTAREA")


class Person:
    """What both can do. `used` is what they have used up: clicks, or key presses."""

    used = 0

    def __init__(self, page: Any) -> None:
        self.page = page

    def reads(self, text: str) -> bool:
        return text in self.page.inner_text("#content")

    def find(self, text: str) -> None:
        """By the box at the top of the page: `/`, and Enter."""
        self.page.keyboard.press("/")
        self.page.keyboard.type(text)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def follow(self, name: str, *, row: str = "", bar: bool = False) -> None:
        """A link by its text; `row`: the first one in the row of a list that says this; `bar`: of the bar."""
        within = self.page.locator(".bar" if bar else "#content")
        if row:
            within = within.locator("tr", has_text=row)
        link = within.get_by_role("link", name=name, exact=True) if name else within.get_by_role("link")
        self._activate(link.first, in_header=bar)

    def press(self, name: str) -> None:
        """A button that sends a form."""
        self._activate(self.page.locator("#content").get_by_role("button", name=name, exact=True))

    def choose(self, name: str) -> None:
        """One of several radio buttons."""
        raise NotImplementedError

    def tick(self, name: str) -> None:
        """A box."""
        raise NotImplementedError

    def write(self, label: str, text: str) -> None:
        """Into a text field."""
        self._enter(self._field(label))
        self.page.keyboard.type(text)

    def pick(self, label: str, option: str) -> None:
        """Of a list that unfolds, by typing what it starts with."""
        field = self._field(label)
        self._enter(field)
        self.page.keyboard.type(option)
        assert field.evaluate("field => field.selectedOptions[0].label") == option

    def has_used(self, *, clicks: int, keys: int) -> int:
        """How much is left of the budget; negative if it did not do."""
        raise NotImplementedError

    def _field(self, label: str) -> Any:
        return self.page.locator("#content").get_by_label(label).first

    def _activate(self, target: Any, *, in_header: bool = False) -> None:
        raise NotImplementedError

    def _enter(self, field: Any) -> None:
        raise NotImplementedError


class WithMouse(Person):
    """Clicks on everything, and goes from one field to the next by Tab, as people do who type."""

    def choose(self, name: str) -> None:
        self.used += 1
        self.page.get_by_role("radio", name=name).click()

    def tick(self, name: str) -> None:
        self.used += 1
        self.page.get_by_role("checkbox", name=name).click()

    def has_used(self, *, clicks: int, keys: int) -> int:
        return clicks - self.used

    def _activate(self, target: Any, *, in_header: bool = False) -> None:
        self.used += 1
        with self.page.expect_navigation():
            target.click()

    def _enter(self, field: Any) -> None:
        if not _has_focus(field) and self.page.evaluate("document.activeElement.tagName") in FIELDS:
            self.page.keyboard.press("Tab")
        if not _has_focus(field):
            self.used += 1
            field.click()


class WithKeyboard(Person):
    """Goes to everything by Tab, from the top of a page by the link that skips what is on every page."""

    def find(self, text: str) -> None:
        self.used += 1
        super().find(text)

    def choose(self, name: str) -> None:
        radio = self.page.get_by_role("radio", name=name)
        group = self.page.locator(f"[type=radio][name='{radio.get_attribute('name')}']")
        self._go_to(group.first)
        while not _has_focus(radio):
            self._press("ArrowDown")
        if not radio.is_checked():
            self._press("Space")
        assert radio.is_checked()

    def tick(self, name: str) -> None:
        self._go_to(self.page.get_by_role("checkbox", name=name))
        self._press("Space")

    def has_used(self, *, clicks: int, keys: int) -> int:
        return keys - self.used

    def _activate(self, target: Any, *, in_header: bool = False) -> None:
        self._go_to(target, skips=not in_header)
        with self.page.expect_navigation():
            self._press("Enter")

    def _enter(self, field: Any) -> None:
        if not _has_focus(field):
            self._go_to(field)

    def _go_to(self, target: Any, *, skips: bool = True) -> None:
        if skips and self.page.evaluate("document.activeElement === document.body"):
            self._press("Tab")
            assert self.page.evaluate("document.activeElement.textContent") == "Skip to main content"
            self._press("Enter")
            assert self.page.evaluate("document.activeElement.id") == "content-start"
        for _ in range(80):
            self._press("Tab")
            assert self.page.evaluate(SEEN), f"the focus is not seen: {_focused(self.page)}"
            if _has_focus(target):
                return
        raise AssertionError("no Tab reaches it")

    def _press(self, key: str) -> None:
        self.used += 1
        self.page.keyboard.press(key)


def _has_focus(target: Any) -> bool:
    return bool(target.evaluate("element => element === document.activeElement"))


def _focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
