"""EXTENSION: what a feature brings to pages, metrics, checks and commands. For workers see `engine.extension`.

Pages, metrics, checks and commands name no feature: they call `installed()` and ask each extension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from django.apps import apps

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User
    from django.core.checks import CheckMessage
    from django.core.management.base import BaseCommand
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from workflows.console.charts import Chart
    from workflows.console.dialogues import Dialogue
    from workflows.console.home import First
    from workflows.console.verbs import Verb
    from workflows.console.workflow_filters import OfFeature
    from workflows.definition import WorkflowDefinition
    from workflows.engine.extension import Feature
    from workflows.features.doctor.findings import Look
    from workflows.health.bounded import Link
    from workflows.health.counts import Counts
    from workflows.health.failures import Group
    from workflows.health.figures import Figures
    from workflows.health.needs_a_person import Source
    from workflows.health.side_processes import Unattended
    from workflows.health.undecided import Undecided
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models import Attempt, Workflow
    from workflows.models.failure import Cause
    from workflows.operations.bulk_verbs import BulkVerb
    from workflows.search.find import Found
    from workflows.telling import audited


class Stay(NamedTuple):
    """A reason to keep a workflow's content: SQL on its row `w`, and the end of the sentence "It cannot be deleted:
    ...".

    The SQL runs for each slice that is emptied, after its rows are locked. It uses an index that begins with the
    workflow.
    """

    reason: str
    condition: str
    words: str


class InBar(NamedTuple):
    """A page in the console's bar, for users with one of the permissions; the lowest `place` comes first.

    `also`: the name of another of its addresses, if it has two.
    """

    place: int
    label: str
    url: str
    permissions: Sequence[str]
    also: str = ""


class ToTell(NamedTuple):
    """What waits for people, of which `features.notices` tells those with one of the `permissions`.

    `rows` is a SELECT of a key, the workflow, and since when it waits; a row that leaves it is not told any more. If it
    is `of_teams`, it also selects the name of a team, and only its members are told. The page of the row of `model`
    shows it, by its key; by default that of the workflow, which may otherwise be NULL.
    `code` is our own, and no type of a task. What `is_urgent` is told within a minute, at any hour.
    """

    topic: str
    code: str
    rows: str
    permissions: Sequence[str]
    is_urgent: bool = True
    model: str = ""
    of_teams: bool = False


class Panel(NamedTuple):
    """A part of a page; `place` names the position. The template gets the page's context and `context`."""

    place: str
    template: str
    context: Mapping[str, Any] = {}


class Note(NamedTuple):
    """A separate line on the page of a workflow, with a link if it has a `url`. `is_plain`: it is not highlighted."""

    text: str
    url: str = ""
    label: str = ""
    is_plain: bool = False


class Mark(NamedTuple):
    """What changed at a moment, for the chart of a cause; `tone` names its colour. Without the right to follow its
    link a user does not see it.
    """

    at: datetime
    told: str
    tone: str
    link: Link | None = None


class Said(NamedTuple):
    """A feature's description of a workflow: `instead` of the engine's own sentence, or lines `below` it.

    The `notes` are for pages only; they fetch their data when they are shown.
    """

    instead: str = ""
    below: Sequence[str] = ()
    notes: Iterable[Note] = ()


class Extension:
    """What a feature brings outside the workers. Each default brings nothing."""

    # Operations on many rows at once. Each needs a unique name of at most 20 characters, which rows store.
    bulk_verbs: ClassVar[Sequence[BulkVerb]] = ()

    # System checks, and those for `check --deploy` only. None of them queries the database.
    checks: ClassVar[Sequence[Callable[..., Iterable[CheckMessage]]]] = ()
    deploy_checks: ClassVar[Sequence[Callable[..., Iterable[CheckMessage]]]] = ()

    # Checks of `manage.py doctor`; they run only if all migrations are applied.
    looks: ClassVar[Sequence[Look]] = ()

    # Tables of the audit.
    audited: ClassVar[Sequence[audited.Source]] = ()

    # Rows of the list “For you”.
    needs_a_person: ClassVar[Sequence[Source]] = ()

    def stands_still(self, user: User) -> Sequence[tuple[str, Link]]:
        """What blocks many workflows until somebody acts, if this user may see it: a sentence, and a link to act.

        Shown above that list. Cost: at most two bounded queries, and none for a user who may not see it.
        """
        return ()

    # What waits for people besides tasks.
    to_tell: ClassVar[Sequence[ToTell]] = ()

    # Question types to answer within the hour, because money may be in doubt: words for one, and for many.
    urgent_questions: ClassVar[Mapping[str, tuple[str, str]]] = {}

    # Rows that only a person can move on, for Home's sentence.
    undecided: ClassVar[Sequence[Undecided]] = ()

    def figures(self, at: datetime) -> Figures | None:
        """The feature's figures at the time `at`, for Home, its sentence and `/metrics`; read once for each request.

        A few bounded statements on the request's connection, without a lock. Raises database errors.
        """
        return None

    def wanted(self, at: datetime) -> Sequence[Unattended]:
        """The `wanted` of its figures, for pages that need no others: one or two bounded statements."""
        return ()

    def first_lines(self, user: User) -> Sequence[First]:
        """Lines for Home's list, which shows 5: the first of what is `awaiting` this user, or what they are told.

        Not asked for where `number_awaiting` is 0.
        """
        return ()

    def awaiting(self, user: User) -> Sequence[tuple[str, Link]]:
        """Requests that wait for this user, mostly as the second person: a sentence, and a link; at most 50."""
        return ()

    # Reasons to keep a workflow's content at any age, for any request (docs/data.md). The first that holds is shown.
    stays: ClassVar[Sequence[Stay]] = ()
    # Statements that empty the feature's personal data of the workflows `%(ids)s`. They run in the transaction that
    # empties these workflows and has locked their rows. Each uses an index that begins with the workflow.
    empties: ClassVar[Sequence[str]] = ()
    # Tables whose rows are deleted with their workflow, in its transaction: "workflows_correction WHERE workflow_id".
    # In other tables of the feature an emptied workflow has no rows.
    belongs: ClassVar[Sequence[str]] = ()

    # Modules of its commands for `manage.py`, each named like its command. `management/commands` hands over to each.
    commands: ClassVar[Sequence[str]] = ()

    # For `manage.py workflow`: the first word of several subcommands, and a sentence about them.
    subcommand_groups: ClassVar[Sequence[tuple[str, str]]] = ()

    def subcommands(self) -> Mapping[str, Subcommand]:
        """Subcommands by name, in the order of `--help`. It is a method so that only that command imports them."""
        return {}

    def hash_again(self) -> str:
        """Renew, with the first of SEARCH_KEYS, each hash that the feature stores apart from the search keys.

        Uses its own transactions; may be called repeatedly. Returns a sentence with the number, empty if there was
        none.
        """
        return ""

    def needs_old_keys(self) -> str:
        """Why an old key of SEARCH_KEYS must stay after all hashes are renewed: a sentence, or empty."""
        return ""

    def api(self) -> Mapping[str, str]:
        """Further addresses of the API in the console's process: a prefix, and the module with its URL patterns.

        The module is imported with the first request; the intake never imports it.
        """
        return {}

    def definitions(self) -> Iterable[WorkflowDefinition]:
        """Definitions of this release that the setting WORKFLOWS does not name; called once in a process."""
        return ()

    # --- The console. Only its process calls these, so they import the pages themselves ---

    # Its pages in the console's bar.
    bar: ClassVar[Sequence[InBar]] = ()

    def lists(self) -> Sequence[ModuleType]:
        """Modules that register list pages in the admin when they are imported."""
        return ()

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        """Other pages, by URL name. Each view gets the request and `site`, and checks the permission itself."""
        return {}

    def banners(self) -> Sequence[str]:
        """Sentences above every page, for users who may see workflows: at most three, from one statement."""
        return ()

    def home(self, request: HttpRequest, read: Counts) -> Iterable[Panel]:
        """Parts of Home, for users who may see workflows: `well`, `needs`, `going` or `bars`.

        `read` holds what Home has already read. Anything else is read here, with a bound.
        """
        return ()

    def number_awaiting(self, user: User) -> int | None:
        """The number of requests that wait for this user, as `awaiting`: one statement as a rule. None: it has none."""
        return None

    def failures(self) -> Iterable[Panel]:
        """Parts of the failures page: `below` the groups."""
        return ()

    def incident(self, cause: Cause, group: Group | None, request: HttpRequest) -> Iterable[Panel]:
        """Parts of the page of a cause: `standing`, or `below`. `group` has its failures, if any are left."""
        return ()

    def marks(self, cause: Cause, shown: str, now: datetime) -> Iterable[Mark]:
        """What changed in the range `shown` up to `now` that may explain the failures of a cause."""
        return ()

    def charts(self, shown: str, now: datetime, causes: Collection[tuple[str, str, str]]) -> Mapping[Any, Chart]:
        """For each of these types, steps and codes: how often it failed, in the range `shown` up to `now`."""
        return {}

    def choose(self, verb: str, rows: QuerySet[Any, Any], *, user: User, chosen_by: str, cause: str = "") -> str:
        """Store a user's selection for a bulk verb of any feature: `rows`, a query for ids, as it is now.

        `cause` is the name of the cause that all of these failed for.

        Returns the address of the page that previews the effect; empty if the feature stores no selections. Raises
        NotAllowed.
        """
        return ""

    def found(self, found: Found, user: User) -> Sequence[tuple[str, str]]:
        """Search results that are not workflows: a sentence, and an address if this user may open it."""
        return ()

    # --- A workflow, on its page, in lists and in commands ---

    def filters(self) -> Sequence[type[OfFeature]]:
        """Filters of the list of workflows; they follow those for status and type."""
        return ()

    def in_list(self, request: HttpRequest) -> Iterable[Panel]:
        """Parts of the list of workflows that this user may see: `above` and `below` it. At most one statement."""
        return ()

    def verbs(self) -> Sequence[Verb]:
        """Operations on one workflow. Buttons are in the order of the features, before the rare ones."""
        return ()

    def why_not_retry(self, *workflow_ids: int) -> Mapping[int, str]:
        """Those of these failed workflows that nobody may retry, with a sentence why not. At most one statement.

        The operation calls this in its transaction, after locking the rows.
        """
        return {}

    def foretells(self, verb: str, workflow: Workflow) -> Iterable[str]:
        """Sentences on what the engine's verb, `retry`, `cancel` or `acknowledge`, does with the feature's data."""
        return ()

    def says(self, workflow: Workflow, attempt: Attempt | None) -> Said:
        """Where the workflow stands; `attempt` is its newest. The first feature that has an `instead` wins."""
        return Said()

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        """Further lines of the workflow's page that this user may see."""
        return ()

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        """Parts of the workflow's page that this user may see: `standing`, `caller` or `connections`."""
        return ()

    def dialogues(self) -> Mapping[str, Dialogue]:
        """How to show the feature's questions to people, by task type."""
        return {}


def installed() -> tuple[Extension, ...]:
    """The extensions of this release, in the order in which they are called, then those of other apps.

    An app brings one by its AppConfig, as the attribute `extension`.
    """
    from workflows.features.installed import EXTENSIONS  # imported late: the only import from a lower layer

    others = (getattr(each, "extension", None) for each in apps.get_app_configs())
    return (*EXTENSIONS, *(each for each in others if isinstance(each, Extension)))


def of_workers() -> tuple[Feature, ...]:
    """The features that take part in claims in this release, in the order in which they are called."""
    from workflows.features.installed import FEATURES  # as above

    return FEATURES


def command(name: str) -> type[BaseCommand]:
    """The command that a feature brings. Raises StopIteration if none has this name.

    Django looks for commands only in the folders of apps, and features are no apps, so that a project names one app.
    """
    path = next(path for each in installed() for path in each.commands if path.endswith(f".{name}"))
    found: type[BaseCommand] = import_module(path).Command
    return found
