"""The pages of the site that are made from the code: checks, commands, what authors import, tables, decisions."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from django.core.management import get_commands, load_command_class
from django.core.management.base import DjangoHelpFormatter

from tests.site.checks import checks
from tests.site.sources import DOCS
from tests.site.tables import picture

# The modules that authors of workflows import, with the names that are for them where the module has no __all__.
FOR_AUTHORS: dict[str, tuple[str, ...]] = {
    "workflows.definition": (
        "WorkflowDefinition", "Step", "Retry", "Brake", "Slo", "Retention", "WorkflowStep", "Lookup", "Undo", "Listing",
        "ServiceCall",
    ),
    "workflows.before_undo": ("ask",),
    "workflows.correctable": ("Correctable",),
    "workflows.search.search_keys": ("SearchKey",),
    "workflows.submissions": (),
    "workflows.signals.store": ("send", "DedupeKeyReused", "UnknownWorkflow"),
    "workflows.effects": ("key_for", "KnownEffect"),
    "workflows.waits": (),
    "workflows.errors": (
        "StepError", "RetryableStepError", "UnknownOutcome", "ServiceUnavailable", "PublishError", "NotAllowed",
    ),
    "workflows.outages": (),
    "workflows.outbox": (),
    "workflows.tasks": (),
    "workflows.wording": ("Wording", "StepWords", "CodeWords", "Money", "CallerField"),
    "workflows.testing": (),
    "workflows.operations": (),
    "workflows.extension": ("Extension",),
}  # fmt: skip
# Options that all commands have.
OF_DJANGO = DjangoHelpFormatter.show_last | {"--help"}
OURS = ("workflows", "staff", "onboarding", "config")


def pages() -> dict[str, str]:
    """The text of each generated page, by its path in the site."""
    made = {f"reference/{name}.md": page_of(name, members) for name, members in FOR_AUTHORS.items()}
    made["reference/checks.md"] = page_of_checks()
    made["reference/commands.md"] = page_of_commands()
    made["reference/tables.md"] = picture()
    made["adr/index.md"] = "# Decisions\n\nWhat else could have been, and why it is not.\n\n"
    for path in sorted(DOCS.glob("adr/0*.md")):
        title = path.read_text().splitlines()[0].lstrip("# 0123456789.")
        made["adr/index.md"] += f"{int(path.name[:4])}. [{title}]({path.name})\n"
    return made


def page_of(name: str, members: tuple[str, ...]) -> str:
    """A module: what it is for, and each public name with its signature, from the docstrings."""
    module = import_module(name)
    told = [f"# `{name}`", as_markdown(module)]
    for member in members or public(module):
        thing = getattr(module, member)
        if callable(thing) and not hasattr(thing, "__origin__") and thing.__doc__:
            told += [f"## `{member}`", f"```python\n{signature_of(member, thing)}\n```", as_markdown(thing)]
            told += methods_of(thing) if inspect.isclass(thing) else []
    return "\n\n".join(filter(None, told)) + "\n"


def public(module: ModuleType) -> list[str]:
    """The module's __all__; of a package without one, what it brings from its own modules."""
    own = [name for name, each in vars(module).items() if getattr(each, "__module__", "").startswith(module.__name__)]
    return getattr(module, "__all__", None) or own


def methods_of(thing: type) -> Iterator[str]:
    for name, method in vars(thing).items():
        function = method.fget if isinstance(method, property) else method
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield f"### `{thing.__name__}.{name}`"
            yield f"```python\n{signature_of(name, function)}\n```" if function is method else "A property."
            yield as_markdown(function)


def signature_of(name: str, thing: object) -> str:
    """The signature; each parameter on a line of its own if it would be long. Types are named without their modules."""
    try:
        signature = inspect.signature(thing)  # type: ignore[arg-type]
    except ValueError:
        return name
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature))
    text = re.sub(r"\b(?:\w+\.)+(?=[A-Z]|timedelta\b)|<class '(?:\w+\.)*(\w+)'>", r"\1", text)
    one = f"{name}{text.replace('(self, ', '(').replace('(self)', '()').replace(' -> None', '')}"
    if len(one) <= 90:
        return one
    return re.sub(r"^(\w+)\((.*)\)", lambda found: f"{found[1]}(\n    {split(found[2])},\n)", one)


def split(parameters: str) -> str:
    """The parameters, a line each: a comma within brackets does not part them."""
    depth, parts = 0, [""]
    for character in parameters:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return ",\n    ".join(part.strip() for part in parts)


def as_markdown(thing: ModuleType | object) -> str:
    """The docstring, with links to the pages of docs/ that it names; empty if a dataclass has made it up."""
    text = inspect.getdoc(thing) or ""
    if text.startswith(f"{getattr(thing, '__name__', '')}("):
        return ""
    text = re.sub(r"(?m)^(?![ -])(.+)\n(?=- )", r"\1\n\n", text)
    return re.sub(r"docs/([\w/-]+\.md)", r"[\1](../\1)", text)


def page_of_checks() -> str:
    told = [
        "# Checks",
        "What `manage.py check` says: `E` is an error, `W` a warning. … stands for a name or a number.",
    ]
    for number, (message, hint) in sorted(checks().items()):
        told += [f"### {number}", message] + ([f"*Hint:* {hint}"] if hint else [])
    return "\n\n".join(told).replace("<", "&lt;") + "\n"


def page_of_commands() -> str:
    os.environ["COLUMNS"] = "100"
    told = ["# Commands", "What `manage.py <command> --help` says."]
    for name, app in sorted(get_commands().items()):
        if str(app).split(".")[0] in OURS:
            parser = load_command_class(str(app), name).create_parser("manage.py", name)
            told += [f"## {name}", *(f"```text\n{text}```" for text in helps(parser))]
    return "\n\n".join(told) + "\n"


def helps(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if {*action.option_strings} & OF_DJANGO:
            action.help = argparse.SUPPRESS
    yield parser.format_help()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in dict.fromkeys(action.choices.values()):
                yield from helps(each)
