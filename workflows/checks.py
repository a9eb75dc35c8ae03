"""System checks of the definitions: errors that would otherwise appear when the first workflow runs."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.checks import CheckMessage, Error, Warning
from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from django.db.models import Count, QuerySet
from django.utils.module_loading import import_string

from workflows import checks_of_steps, checks_of_types
from workflows.before_undo import NEVER_ASKED, BeforeUndo
from workflows.definition import (
    OPTIONS_OF_FEATURES,
    WorkflowDefinition,
    definitions,
    undo_of,
    wording_of,
)
from workflows.effects import MAY_HAVE_HAPPENED
from workflows.extension import installed, of_workers
from workflows.health import series
from workflows.ingress import signal_sources, webhooks
from workflows.ingress.signal_sources import SignalSource
from workflows.models import Effect, WebhookSecret, Workflow
from workflows.postgres import server_log
from workflows.redaction import class_name, place
from workflows.sealing.envelopes import FROM_SECRET_KEY
from workflows.search.search_keys import SearchKey
from workflows.signals.store import is_name
from workflows.spelling import did_you_mean
from workflows.wording import known_words_for_code

# The newest failed workflows that one check reads.
FAILURES_CHECKED = 5_000

# Characters of a secret: at least 128 bits in any notation.
SHORTEST_KEY = 32


Messages = Iterator[CheckMessage]

DOTTED_PATH = "Give the dotted path of a WorkflowDefinition, like 'onboarding.workflow.ONBOARDING'."


def check_definitions(**kwargs: Any) -> Messages:
    """Every path in WORKFLOWS leads to a definition with steps; names of definitions and of steps are unique."""
    if isinstance(settings.WORKFLOWS, str):
        message = f"WORKFLOWS is the text {settings.WORKFLOWS!r}, and no list."
        yield Error(message, hint=f"Write WORKFLOWS = [{settings.WORKFLOWS!r}].", id="workflows.E002")
        return
    known: list[tuple[str, WorkflowDefinition]] = []
    for path in settings.WORKFLOWS:
        try:
            definition = import_string(path)
        except Exception as error:
            why, hint = _why_not_imported(path, error)
            message = f"WORKFLOWS names {path!r}, which cannot be imported: {why}"
            yield Error(message, hint=hint, id="workflows.E001")
            continue
        if not isinstance(definition, WorkflowDefinition):
            message = f"WORKFLOWS names {path!r}, which is a {type(definition).__name__}."
            hint = f"{DOTTED_PATH}{_definition_near(path)}"
            yield Error(message, hint=hint, id="workflows.E002")
            continue
        known.append((path, definition))
        yield from _check_definition(definition)
    for name in _repeated(definition.name for _, definition in known):
        paths = " and ".join(path for path, definition in known if definition.name == name)
        hint = "Rows are found by this name: each definition needs one of its own."
        yield Error(f"Two definitions in WORKFLOWS are named {name!r}: {paths}.", hint=hint, id="workflows.E003")


def _why_not_imported(path: Any, error: Exception) -> tuple[str, str]:
    """What is wrong with the path, or else with the module that it names; and what to do."""
    if not isinstance(path, str):
        return f"it is of type {type(path).__name__}, and no text.", DOTTED_PATH
    module = path.rpartition(".")[0]
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name!r}.", DOTTED_PATH
    if module in sys.modules:
        is_module = hasattr(sys.modules[module], "__path__") and find_spec(path)
        return "it is a module." if is_module else f"{error}.", f"{DOTTED_PATH}{_definition_near(path)}"
    where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else place(error)
    told = error.msg if isinstance(error, SyntaxError) else error
    return f"{class_name(error)}: {told} ({where})", "Mend that line: Python fails there while it imports the module."


def _definition_near(path: str) -> str:
    """The definition that was probably meant, of the module that the path names, or that it is in."""
    try:
        module = import_module(path)
    except ImportError:
        module = sys.modules[path.rpartition(".")[0]]
    names = [name for name, each in vars(module).items() if isinstance(each, WorkflowDefinition)]
    near = get_close_matches(path.rpartition(".")[2], names, n=1) or names[:1]
    return f" Did you mean '{module.__name__}.{near[0]}'?" if near else ""


def _check_definition(definition: WorkflowDefinition) -> Messages:
    if faults := checks_of_types.faults(definition) or _unfit(definition):
        yield from faults
        return
    for name in _repeated(name for step in definition.steps for name in set(step.names)):
        message = f"Two steps of {definition.name!r} are, or were, named {name!r}."
        hint = "A step is known by its name: give one of them another, Step(..., name=...)."
        yield Error(message, hint=hint, obj=definition, id="workflows.E005")
    for step in definition.steps:
        where = f"The step {step.name!r} of {definition.name!r}"
        for kind, number, message, hint in checks_of_steps.faults(step, definition):
            yield kind(f"{where} {message}", hint=hint, obj=definition, id=f"workflows.{number}")
    for name, listing in definition.listings.items():
        if fault := checks_of_steps.call_fault(listing, None):
            message = f"The listing {name!r} of {definition.name!r} cannot be called with a time: {fault}."
            yield Error(message, hint="Write def list_charges(since).", obj=definition, id="workflows.E040")
    yield from _check_keys(definition)
    for wrong in _wrong_before_undo(definition, definition.before_undo) if definition.before_undo else ():
        hint = 'As in before_undo=ask("billing", when=("program_full",)): see docs/how-to/undo.md.'
        message = f"The question before a reversal of {definition.name!r} {wrong}"
        yield Error(message, hint=hint, obj=definition, id="workflows.E017")


def _wrong_before_undo(definition: WorkflowDefinition, asks: BeforeUndo) -> Iterator[str]:
    """Yield what would keep the question from being asked or answered: nothing to undo, or no words for the failure."""
    if not any(step.undo for step in definition.steps):
        yield "is never asked: no step has an undo."
    if never := ", ".join(sorted(NEVER_ASKED.intersection(asks.when))):
        yield f"is never asked after {never}."
    if wordless := [code for code in asks.when if known_words_for_code(definition.wording, code) is None]:
        yield f"is asked after {', '.join(wordless)}, and the wording has no words for that."
    elif not (asks.when or definition.wording.codes):
        yield "is asked after each failure, and the wording has no words for its codes."


def _unfit(definition: WorkflowDefinition) -> list[CheckMessage]:
    """A fault of the definition as a whole; its steps are then not checked."""
    if not definition.steps:
        hint = "List its functions, in their order: steps=[charge_card, ship]."
        return [
            Error(f"The definition {definition.name!r} has no steps.", hint=hint, obj=definition, id="workflows.E004")
        ]
    required = [name for name, field in definition.context_class.model_fields.items() if field.is_required()]
    if required:
        message = f"The context of {definition.name!r} requires {', '.join(required)} before any step has run."
        hint = "Give each of its fields a default: the context is built empty, and filled by the steps."
        return [Error(message, hint=hint, obj=definition, id="workflows.E008")]
    longest = [("name", definition.name, 100), ("queue", definition.queue, 63)]
    longest += [("step's name", name, 100) for step in definition.steps for name in step.names]
    for what, name, limit in longest:
        if len(name) > limit:
            message = f"The {what} {name[:20]!r}... of a definition is longer than its column: {limit} characters."
            return [Error(message, obj=definition, id="workflows.E007")]
        if not name or not name.isprintable():  # PostgreSQL stores no NUL or surrogate, and people read the others
            message = f"The {what} {name!r} of a definition is empty, or has characters that cannot be printed."
            return [Error(message, obj=definition, id="workflows.E007")]
    return []


def _check_keys(definition: WorkflowDefinition) -> Messages:
    """Each search key is a SearchKey of a field. Its kind is a plain word, because hashes and records contain it."""
    wrong = [
        str(kind)[:20]
        for kind, key in definition.search_keys.items()
        if not isinstance(key, SearchKey) or not all(key.path) or not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", kind)
    ]
    if wrong:
        message = f"Of {definition.name!r} these search keys are not valid: {', '.join(wrong)}."
        hint = 'Each is a lower-case word and a SearchKey: {"email": SearchKey("customer.email", normalise.email)}.'
        yield Error(message, hint=hint, obj=definition, id="workflows.E013")
    if not all(isinstance(field, str) and all(field.split(".")) for field in definition.business_key):
        message = f"The business key of {definition.name!r} does not name fields of its payload."
        hint = 'Name them with dots, as in business_key=("customer.email", "program").'
        yield Error(message, hint=hint, obj=definition, id="workflows.E014")


def check_options(**kwargs: Any) -> Messages:
    """Each option of a definition belongs to the engine or to an installed feature."""
    off = {option: each for each, options in OPTIONS_OF_FEATURES.items() if _is_off(each) for option in options}
    for definition in readable_definitions().values():
        of_steps = {option for step in definition.steps for option in off if getattr(step, option, None)}
        for option in sorted((definition.stated | of_steps) & off.keys()):
            yield Error(
                f"The definition {definition.name!r} says {option}=, and the feature {off[option]!r} is not installed: "
                "nothing does what the option says.",
                hint="Leave the option out, or list the feature in workflows/features/installed.py.",
                obj=definition,
                id="workflows.E023",
            )


def _is_off(feature: str) -> bool:
    """Whether the feature is absent, or `workflows.features.installed` does not list all of its doors."""
    listed = {type(each).__module__ for each in (*of_workers(), *installed())}
    room = f"workflows.features.{feature}"
    doors = [f"{room}.{door}" for door in ("hooks", "extension") if find_spec(room) and find_spec(f"{room}.{door}")]
    return not doors or not listed.issuperset(doors)


def check_wording(**kwargs: Any) -> Messages:
    """A wording with words for steps has words for each step of its definition, and for no other; nor do listings."""
    for definition in readable_definitions().values():
        lacking, known = wordless_steps(definition), {name for step in definition.steps for name in step.names}
        known |= {*definition.retired}
        money = [definition.wording.money.step] if definition.wording.money else []
        for where, names in (
            ("wording", [*definition.wording.steps, *money]),
            ("listings", [name.removeprefix(undo_of("")) for name in definition.listings]),
        ):
            if unknown := sorted({*names} - known):
                message = f"The {where} of {definition.name!r} names {', '.join(unknown)}: it has no such step."
                hint = "Name steps of the list, or steps that have left it (retired=..., formerly=...)."
                hint += did_you_mean(unknown[0], known)
                yield Warning(message, hint=hint, obj=definition, id="workflows.W014")
        if lacking and definition.wording.steps:
            message = f"The wording of {definition.name!r} has no words for {', '.join(lacking)}."
            hint = "The console shows the names made readable. Say StepWords(title, phase) of each in its Wording."
            yield Warning(message, hint=hint, obj=definition, id="workflows.W013")


def wordless_steps(definition: WorkflowDefinition) -> list[str]:
    """The steps of a definition for which its wording has no words."""
    return [step.name for step in definition.steps if step.name not in definition.wording.steps]


def check_codes_have_words(*, databases: Collection[str] | None = None, **kwargs: Any) -> Messages:
    """Each code with which a workflow has failed, or is tried again, has words for staff and patients.

    Runs with `manage.py check --database default`. It reads the newest FAILURES_CHECKED of both.
    """
    known = readable_definitions()
    codes: list[tuple[str, str]] = []
    for status in (Workflow.Status.FAILED, Workflow.Status.PENDING):
        newest = Workflow.objects.filter(status=status).exclude(last_error_code="").order_by("-id")
        codes += _read(newest.values_list("workflow_type", "last_error_code")[:FAILURES_CHECKED], databases)
    hint = "Many just now? Find the cause first. Else say CodeWords(staff, patient) in the definition's Wording."
    for workflow_type, code in sorted(set(codes)):
        wording = wording_of(definition := known.get(workflow_type))
        if wording.codes and known_words_for_code(wording, code) is None:
            message = f"Workflows of {workflow_type!r} have failed with {code!r}, and nothing says what that means."
            yield Warning(message, hint=hint, obj=definition, id="workflows.W015")


def check_teams(*, databases: Collection[str] | None = None, **kwargs: Any) -> Messages:
    """The team that is asked before an undo is a group. Runs with `manage.py check --database default`."""
    asked = {each.before_undo.team: each for each in readable_definitions().values() if each.before_undo}
    groups = _read(Group.objects.values_list("name", flat=True), databases)
    for team, definition in asked.items() if groups else ():
        if team not in groups:
            yield Warning(
                f"The definition {definition.name!r} asks the team {team!r} before a reversal: there is no such group.",
                hint="Make the group, and give it members. Until then the team operations is asked.",
                obj=definition,
                id="workflows.W026",
            )


def check_submission_workflow(**kwargs: Any) -> Messages:
    """SUBMISSION_WORKFLOW is empty or the name of a definition; with any other value the intake does not start."""
    try:
        known = definitions()
    except Exception:  # check_definitions reports it
        return
    name = settings.SUBMISSION_WORKFLOW
    if name and name not in known:
        yield Warning(
            f"SUBMISSION_WORKFLOW is {name!r}, which no definition in WORKFLOWS is called: no submission can come in.",
            hint=f"Set it to one of: {', '.join(sorted(known))}. Or leave it empty (SUBMISSION_WORKFLOW=), "
            "for processes that take no submissions.",
            id="workflows.W012",
        )


def check_search_keys(**kwargs: Any) -> Messages:
    """SEARCH_KEYS is set and cannot be guessed: with the key, anybody can hash a list of addresses in a minute."""
    lost = "search keys are made with SECRET_KEY, and once that changes nobody is found by e-mail or phone any more"
    return _check_setting("SEARCH_KEYS", settings.SEARCH_KEYS, lost, "searchkeys", ids=("W016", "W017"))


def check_data_keys(**kwargs: Any) -> Messages:
    """DATA_KEYS is set, and cannot be guessed."""
    lost = (
        "secrets, and what is not delivered yet, are sealed under SECRET_KEY, and once that changes no workflow under "
        "way can read its own, and nothing of the rest can be delivered"
    )
    return _check_setting("DATA_KEYS", settings.DATA_KEYS, lost, "datakeys", ids=("W020", "W021"))


def _check_setting(name: str, texts: Collection[str], lost: str, command: str, *, ids: tuple[str, str]) -> Messages:
    """The secrets of a setting exist, are long enough, and differ."""
    hint = 'Set it to a secret: python -c "import secrets; print(secrets.token_urlsafe(32))". '
    then = f"Then see manage.py {command} --help."
    if not texts:
        made = f"Where there are some already, add what they were made with, for now: {name}=<new>,{FROM_SECRET_KEY}. "
        yield Warning(f"{name} is not set: {lost}.", hint=hint + made + then, id=f"workflows.{ids[0]}")
    short = sum(len(text) < SHORTEST_KEY for text in texts if text != FROM_SECRET_KEY)
    if short or len(set(texts)) < len(texts):
        what = f"{short} of them shorter than {SHORTEST_KEY} characters" if short else "one of them twice"
        yield Warning(f"{name} has {what}.", hint=hint + then, id=f"workflows.{ids[1]}")


def check_series(**kwargs: Any) -> Messages:
    """The definitions have no more combinations of step and code than one metric family of `/metrics` reports."""
    declared = sum(series.declared(definition) for definition in readable_definitions().values())
    if declared > series.MOST_SERIES:
        yield Warning(
            f"The definitions have {declared:,} combinations of a step and a code; of a family /metrics tells "
            f"{series.MOST_SERIES:,} series, and leaves out the others.",
            hint="Give fewer codes, each for what a person does differently; or serve the types by installations of "
            "their own.",
            id="workflows.W018",
        )


def check_undeclared_steps(*, databases: Collection[str] | None = None, **kwargs: Any) -> Messages:
    """No workflow under way has a call on its ledger of a step that this release does not declare.

    A workflow with such a call makes no new call (`workflows.effects.reconcile`). Runs with `manage.py check --database
    default`.
    """
    effects = Effect.objects.filter(undo=False, state__in=MAY_HAVE_HAPPENED, workflow__status=Workflow.Status.PENDING)
    called = effects.values_list("workflow__workflow_type", "step").order_by("workflow__workflow_type", "step")
    known = readable_definitions()
    for workflow_type, step, count in _read(called.annotate(workflows=Count("workflow", distinct=True)), databases):
        if workflow_type in known and not known[workflow_type].declares(step):
            definition = known[workflow_type]
            gone = {*definition.retired, *(name for each in definition.steps for name in each.formerly)}
            yield Warning(
                f"This release of {workflow_type!r} declares no step {step!r}, and workflows under way have called it "
                f"({count}): they start no new call.",
                hint=f"If it was renamed: Step(..., formerly=({step!r},)). If it has left the list on purpose: "
                f"WorkflowDefinition(..., retired=({step!r},)).{did_you_mean(step, gone)}",
                obj=known[workflow_type],
                id="workflows.W004",
            )


def check_server_log(*, databases: Collection[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """PostgreSQL's log holds no values of our statements. Runs with `manage.py check --database default`.

    With DEBUG nothing is said: the values are a developer's own.
    """
    if settings.DEBUG or DEFAULT_DB_ALIAS not in (databases or ()):
        return []
    return [Warning(leak.what, hint=leak.cure, id=server_log.CHECK) for leak in server_log.leaks()]


def _read(rows: QuerySet[Any, Any], databases: Collection[str] | None) -> list[Any]:
    """The rows; none if the database is not checked or not migrated yet, because `migrate` runs checks too."""
    if not databases or DEFAULT_DB_ALIAS not in databases:
        return []
    try:
        return list(rows)
    except ProgrammingError:
        return []


def readable_definitions() -> Mapping[str, WorkflowDefinition]:
    """The definitions by name, but for those with options of a wrong type; empty if one cannot be imported.

    check_definitions reports these.
    """
    try:
        return {name: each for name, each in definitions().items() if not checks_of_types.faults(each)}
    except Exception:
        return {}


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def check_signal_sources(**kwargs: Any) -> Messages:
    """Each path in SIGNAL_SOURCES leads to a valid SignalSource, and no two share a webhook or topic."""
    known: list[SignalSource] = []
    for path in settings.SIGNAL_SOURCES:
        try:
            source = import_string(path)
        except ImportError as error:
            source = error
        if not isinstance(source, SignalSource):
            hint = "Give the dotted path of a SignalSource, like 'onboarding.sources.PAYMENTS'."
            message = f"SIGNAL_SOURCES names {path!r}, which is a {type(source).__name__}: {source}"
            yield Error(message, hint=hint, id="workflows.E020")
            continue
        known.append(source)
        for message, hint in _wrong_in_source(source):
            yield Error(f"The SignalSource {source.name!r} {message}", hint=hint, id="workflows.E021")
    doors = [f"webhooks of {each.name!r}" if each.verify else f"the topic {each.topic!r}" for each in known]
    for door in _repeated(doors):
        hint = "Give one of them another name or topic: the first would get all events."
        yield Error(f"Two SignalSources are for {door}.", hint=hint, id="workflows.E022")


def _wrong_in_source(source: SignalSource) -> Iterator[tuple[str, str]]:
    if bool(source.verify) == bool(source.topic):
        yield "has a verifier and a topic, or neither.", "Say verify=Stripe(), or topic='accounts.v1'."
    if not webhooks.is_source(source.name):
        yield "has a name that no source may have.", "1 to 100 lowercase letters, digits and -_., as in 'stripe-eu'."
    if sum(map(bool, (source.linking_id, source.workflow, source.business_key))) != 1:
        yield "says nobody, or several, whom it is for.", "Say one of linking_id=, workflow= and business_key=."
    if source.business_key and source.workflow_type not in readable_definitions():
        yield f"is for workflows of {source.workflow_type!r}: unknown.", "Say workflow_type= of a definition."
    if isinstance(source.signal, str) and not is_name(source.signal):
        yield f"sends {source.signal!r}, which no signal may be called.", "Letters, digits and _.-/, and not 'cancel'."


def check_sources_have_secrets(*, databases: Collection[str] | None = None, **kwargs: Any) -> Messages:
    """Each declared source has a signing secret. Runs with `manage.py check --database default`."""
    if not databases:
        return
    valid = _read(WebhookSecret.objects.filter(revoked_at=None).values_list("source", flat=True), databases)
    for source in signal_sources.sources():
        if source.verify and source.name not in valid:
            hint = f"manage.py createwebhooksecret {source.name} --from-stdin takes the secret that it has chosen."
            yield Warning(f"{source.name!r} has no secret: its events are refused.", hint=hint, id="workflows.W024")
