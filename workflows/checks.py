"""System checks of the definitions: errors that would otherwise appear when the first workflow runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.checks import CheckMessage, Error, Warning
from django.db import DEFAULT_DB_ALIAS, ProgrammingError
from django.db.models import Count, QuerySet
from django.utils.module_loading import import_string

from workflows.before_undo import NEVER_ASKED, BeforeUndo
from workflows.definition import OPTIONS_OF_FEATURES, Step, WorkflowDefinition, definitions, wording_of
from workflows.effects import MAY_HAVE_HAPPENED
from workflows.extension import installed, of_workers
from workflows.health import series
from workflows.ingress import signal_sources, webhooks
from workflows.ingress.signal_sources import SignalSource
from workflows.models import Effect, WebhookSecret, Workflow
from workflows.postgres import server_log
from workflows.sealing.envelopes import FROM_SECRET_KEY
from workflows.search.search_keys import SearchKey
from workflows.signals.store import is_name
from workflows.wording import known_words_for_code

# The newest failed workflows that one check reads.
FAILURES_CHECKED = 5_000

# Characters of a secret: at least 128 bits in any notation.
SHORTEST_KEY = 32


Messages = Iterator[CheckMessage]

DOTTED_PATH = "Give the dotted path of a WorkflowDefinition, like 'onboarding.workflow.ONBOARDING'."


def check_definitions(**kwargs: Any) -> Messages:
    """Every path in WORKFLOWS leads to a definition with steps; names of definitions and of steps are unique."""
    known: list[WorkflowDefinition] = []
    for path in settings.WORKFLOWS:
        try:
            definition = import_string(path)
        except ImportError as error:
            message = f"WORKFLOWS names {path!r}, which cannot be imported: {error}"
            yield Error(message, hint=DOTTED_PATH, id="workflows.E001")
            continue
        if not isinstance(definition, WorkflowDefinition):
            message = f"WORKFLOWS names {path!r}, which is a {type(definition).__name__}."
            yield Error(message, hint=DOTTED_PATH, id="workflows.E002")
            continue
        known.append(definition)
        yield from _check_definition(definition)
    for name in _repeated(definition.name for definition in known):
        hint = "Rows are found by this name: each definition needs one of its own."
        yield Error(f"Two definitions in WORKFLOWS are named {name!r}.", hint=hint, id="workflows.E003")


def _check_definition(definition: WorkflowDefinition) -> Messages:
    if fault := _unfit(definition):
        yield fault
        return
    for name in _repeated(name for step in definition.steps for name in set(step.names)):
        message = f"Two steps of {definition.name!r} are, or were, named {name!r}."
        hint = "A step is known by its name: give one of them another, Step(..., name=...)."
        yield Error(message, hint=hint, obj=definition, id="workflows.E005")
    for step in definition.steps:
        where = f"The step {step.name!r} of {definition.name!r}"
        for check in (_check_best_effort, _check_policy, _check_repeats, _check_returns):
            for kind, number, message, hint in check(step, definition):
                yield kind(f"{where} {message}", hint=hint, obj=definition, id=f"workflows.{number}")
    yield from _check_keys(definition)
    for wrong in _wrong_before_undo(definition, definition.before_undo) if definition.before_undo else ():
        hint = 'As in before_undo=ask("billing", when=("program_full",)): see docs/writing-workflows.md.'
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


def _unfit(definition: WorkflowDefinition) -> CheckMessage | None:
    """A fault of the definition as a whole; its steps are then not checked."""
    if not definition.steps:
        return Error(f"The definition {definition.name!r} has no steps.", obj=definition, id="workflows.E004")
    required = [name for name, field in definition.context_class.model_fields.items() if field.is_required()]
    if required:
        message = f"The context of {definition.name!r} requires {', '.join(required)} before any step has run."
        hint = "Give each of its fields a default: the context is built empty, and filled by the steps."
        return Error(message, hint=hint, obj=definition, id="workflows.E008")
    longest = [("name", definition.name, 100), ("queue", definition.queue, 63)]
    longest += [("step's name", name, 100) for step in definition.steps for name in step.names]
    for what, name, limit in longest:
        if len(name) > limit:
            message = f"The {what} {name[:20]!r}... of a definition is longer than its column: {limit} characters."
            return Error(message, obj=definition, id="workflows.E007")
        if not name or not name.isprintable():  # PostgreSQL stores no NUL or surrogate, and people read the others
            message = f"The {what} {name!r} of a definition is empty, or has characters that cannot be printed."
            return Error(message, obj=definition, id="workflows.E007")
    return None


def _check_keys(definition: WorkflowDefinition) -> Messages:
    """Each search key is a SearchKey of a field. Its kind is a plain word, because hashes and records contain it."""
    wrong = [
        str(kind)[:20]
        for kind, key in definition.search_keys.items()
        if not isinstance(key, SearchKey) or not all(key.path) or not re.fullmatch(r"[a-z][a-z0-9_]{0,62}", kind)
    ]
    if wrong:
        message = f"Of {definition.name!r} these search keys are not valid: {', '.join(wrong)}."
        hint = 'Each is a lower-case word and a SearchKey: {"email": SearchKey("patient.email", normalise.email)}.'
        yield Error(message, hint=hint, obj=definition, id="workflows.E013")
    if not all(isinstance(field, str) and all(field.split(".")) for field in definition.business_key):
        message = f"The business key of {definition.name!r} does not name fields of its payload."
        hint = 'Name them with dots, as in business_key=("patient.email", "program").'
        yield Error(message, hint=hint, obj=definition, id="workflows.E014")


# A fault of a step: the severity, the number of the check, the rest of a sentence about the step, and a hint.
Faults = Iterator[tuple[type[Error] | type[Warning], str, str, str]]


def _check_repeats(step: Step, definition: WorkflowDefinition) -> Faults:
    """No step is both once and repeatable; a best-effort step that is not the last says which of the two it is."""
    if step.once and step.repeatable:
        message = "is once and repeatable: its call is not made again, and may be made again."
        yield Error, "E009", message, "Leave out repeatable=True: what is once is never repeated without need."
    # A later step may fail or wait; then this step has run twice even in a workflow that completes.
    if step.best_effort and not step.once and not step.repeatable and step is not definition.steps[-1]:
        message = "is best effort and stands before others: whenever one of them fails or waits, it runs again."
        hint = "Make it Step(..., once=True); or say that this does no harm, Step(..., repeatable=True)."
        yield Warning, "W005", message, hint


def _check_best_effort(step: Step, definition: WorkflowDefinition) -> Faults:
    """Only a best-effort step may have `parks` or `follow_up`."""
    stated = [name for name, value in (("parks", step.parks), ("follow_up", step.follow_up)) if value]
    if stated and not step.best_effort:
        hint = "Any other step is parked in an outage, and never let go: leave it out, or say best_effort=True."
        yield Error, "E012", f"has {' and '.join(stated)}, and is not best effort.", hint


def _check_policy(step: Step, definition: WorkflowDefinition) -> Faults:
    """A step's call can do what the step's policy promises."""
    if not step.once:
        if step.undo or step.lookup or step.undo_lookup or step.key_ttl is not None:
            message = "has an undo, a lookup or a key_ttl, and is not once."
            yield Error, "E006", message, "Make it Step(..., once=True), or leave them out."
        return
    if step.undo_lookup and not step.undo:
        message = "has an undo_lookup and no undo: nothing would ask it."
        yield Error, "E006", message, "Give it undo=..., or leave it out."
        return
    if step.lookup:
        return
    if step.key_ttl is None:
        message = "is once, and has neither a lookup nor a key_ttl: whenever its answer is lost, a person is asked."
        hint = "Give it lookup=..., which asks the service; or key_ttl=..., if the service honours idempotency keys."
        yield Warning, "W001", message, hint
        return
    if step.undo:
        message = "has an undo and no lookup: before a call in doubt is undone, a person is asked whether it was made."
        hint = "Give it lookup=..., which asks the service. Nothing is repeated in order to be undone."
        yield Warning, "W003", message, hint


def _check_returns(step: Step, definition: WorkflowDefinition) -> Faults:
    """The context has the fields that a step returns, so a person can fill them in."""
    if step.returns is None:
        if step.once:
            message = "is once, and does not say what it returns: a person who is asked about its call writes JSON."
            hint = "Name the context's fields in its result, Step(..., returns=('charge_id',)); () if it returns {}."
            yield Warning, "W010", message, hint
        return
    fields, name = definition.context_class.model_fields, definition.context_class.__name__
    if unknown := [field for field in step.returns if field not in fields]:
        hint = "Name fields of the context; returns=('charge_id',) is a tuple, with a comma."
        yield Error, "E010", f"returns {', '.join(unknown)}: not declared in {name}.", hint
    if hidden := [field for field in step.returns if field in fields and fields[field].exclude]:
        hint = "A secret has no place on the ledger: let a step that is not once get it."
        yield Error, "E011", f"returns {', '.join(hidden)}, which {name} keeps out of every copy.", hint


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
    """A wording with words for steps has words for each step of its definition, and for no other."""
    for definition in readable_definitions().values():
        lacking, known = wordless_steps(definition), {name for step in definition.steps for name in step.names}
        misspelt = [name for name in definition.wording.steps if name not in {*known, *definition.retired}]
        if lacking and definition.wording.steps:
            message = f"The wording of {definition.name!r} has no words for {', '.join(lacking)}."
            hint = "The console shows the names made readable. Say StepWords(title, phase) of each in its Wording."
            yield Warning(message, hint=hint, obj=definition, id="workflows.W013")
        if misspelt:
            message = f"The wording of {definition.name!r} speaks of {', '.join(misspelt)}: it has no such step."
            hint = "Name steps of the list, or steps that have left it (retired=..., formerly=...)."
            yield Warning(message, hint=hint, obj=definition, id="workflows.W014")


def wordless_steps(definition: WorkflowDefinition) -> list[str]:
    """The steps of a definition for which its wording has no words."""
    return [step.name for step in definition.steps if step.name not in definition.wording.steps]


def check_codes_have_words(*, databases: Collection[str] | None = None, **kwargs: Any) -> Messages:
    """Each code with which a workflow has failed has words for staff and patients.

    Runs with `manage.py check --database default`. It reads the newest FAILURES_CHECKED failed workflows.
    """
    known = readable_definitions()
    newest = Workflow.objects.filter(status=Workflow.Status.FAILED).exclude(last_error_code="").order_by("-id")
    codes = _read(newest.values_list("workflow_type", "last_error_code")[:FAILURES_CHECKED], databases)
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
    except (ImportError, AttributeError):  # check_definitions reports it
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
            yield Warning(
                f"This release of {workflow_type!r} declares no step {step!r}, and workflows under way have called it "
                f"({count}): they start no new call.",
                hint=f"If it was renamed: Step(..., formerly=({step!r},)). If it has left the list on purpose: "
                f"WorkflowDefinition(..., retired=({step!r},)).",
                obj=known[workflow_type],
                id="workflows.W004",
            )


def check_server_log(*, databases: Collection[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """PostgreSQL's log holds no values of our statements. Runs with `manage.py check --database default`."""
    if DEFAULT_DB_ALIAS not in (databases or ()):
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
    """The definitions by name; empty if one cannot be imported, which check_definitions reports."""
    try:
        return definitions()
    except (ImportError, AttributeError):
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
    if source.business_key and source.workflow_type not in definitions():
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
