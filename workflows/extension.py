"""EXTENSION: what a feature brings to pages, metrics, checks and commands. To workers it brings `engine.extension`.

What is asked for stands below the features, and names none of them: it asks `installed()`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from types import ModuleType

    from django.contrib.auth.models import User
    from django.core.checks import CheckMessage
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from django.http.response import HttpResponseBase

    from workflows.console.base import Verb
    from workflows.console.charts import Chart
    from workflows.console.dialogues import Dialogue
    from workflows.console.home import First
    from workflows.console.workflow_filters import OfFeature
    from workflows.engine.extension import Feature
    from workflows.health.bounded import Link
    from workflows.health.counts import Counts
    from workflows.health.figures import Figures
    from workflows.health.needs_a_person import Source
    from workflows.health.side_processes import Unattended
    from workflows.health.undecided import Undecided
    from workflows.management.workflow.subcommand import Subcommand
    from workflows.models import Attempt, Workflow
    from workflows.operations.bulk_verbs import BulkVerb
    from workflows.search.find import Found
    from workflows.telling import audited


class Stay(NamedTuple):
    """Why a workflow keeps its content: SQL on its row `w`, and the end of the sentence "It cannot be deleted: ...".

    The condition is asked of the slice that is emptied, once its rows are locked: it is by an index that begins with
    the workflow.
    """

    reason: str
    condition: str
    words: str


class InBar(NamedTuple):
    """A page in the bar of the console, for users with one of the permissions; the lowest `place` comes first."""

    place: int
    label: str
    url: str
    permissions: Sequence[str]


class Panel(NamedTuple):
    """A part of a page: `place` is where the page has it. The template sees the page's context, and this one."""

    place: str
    template: str
    context: Mapping[str, Any] = {}


class Note(NamedTuple):
    """A line of its own on the page of a workflow; where it leads, if it has a `url`. `is_plain`: it is not marked."""

    text: str
    url: str = ""
    label: str = ""
    is_plain: bool = False


class Said(NamedTuple):
    """Where a workflow stands, as a feature says it: `instead` of the engine's own sentence, or lines `below` it.

    The `notes` are for pages alone: they read what they need when they are shown.
    """

    instead: str = ""
    below: Sequence[str] = ()
    notes: Iterable[Note] = ()


class Extension:
    """What a feature brings beside the workers. Each method has an answer that brings nothing."""

    # What can be done to many rows at once. Each has a name of its own, of 20 characters at most: rows keep it.
    bulk_verbs: ClassVar[Sequence[BulkVerb]] = ()

    # System checks, and those for `check --deploy` alone; none of them reads the database.
    checks: ClassVar[Sequence[Callable[..., Iterable[CheckMessage]]]] = ()
    deploy_checks: ClassVar[Sequence[Callable[..., Iterable[CheckMessage]]]] = ()

    # Tables of the audit.
    audited: ClassVar[Sequence[audited.Source]] = ()

    # Rows of the list “Needs a person”.
    needs_a_person: ClassVar[Sequence[Source]] = ()

    def stands_still(self, user: User) -> Sequence[tuple[str, Link]]:
        """What keeps many waiting until somebody acts, if this user may see it: a sentence, and where one acts.

        It stands above that list. It costs a bounded read or two, and nothing for a user who may not see it.
        """
        return ()

    # Its types of questions that are due within the hour, for money may be in doubt: words for one, and for many.
    urgent_questions: ClassVar[Mapping[str, tuple[str, str]]] = {}

    # Its rows that nobody but a person moves on, for Home's sentence.
    undecided: ClassVar[Sequence[Undecided]] = ()

    def figures(self, at: datetime) -> Figures | None:
        """What Home, its sentence and `/metrics` say of the feature: read once for a request, which is at `at`.

        A few bounded statements on the request's own connection, without a lock. Raises database errors.
        """
        return None

    def wanted(self, at: datetime) -> Sequence[Unattended]:
        """The `wanted` of its figures, for pages that need no others: a bounded statement or two."""
        return ()

    def first_lines(self, user: User) -> Sequence[First]:
        """What stands first among the lines of Home that need this user; Home shows 5. One bounded read."""
        return ()

    def awaiting(self, user: User) -> Sequence[tuple[str, Link]]:
        """What waits for this user as its second person: a sentence, and where to approve it; 50 at most."""
        return ()

    # Why a workflow keeps its content, whatever its age and whoever asks (docs/data.md). The first that holds is told.
    stays: ClassVar[Sequence[Stay]] = ()
    # Statements that empty what it has on record of a person, for the workflows `%(ids)s`: in the transaction that
    # empties these, which holds their rows. Each is by an index that begins with the workflow.
    empties: ClassVar[Sequence[str]] = ()
    # Tables whose rows are deleted with their workflow, in its transaction: "workflows_correction WHERE workflow_id".
    # An emptied workflow has rows in no other table of the feature.
    belongs: ClassVar[Sequence[str]] = ()

    # Of `manage.py workflow`: a word before the names of several subcommands, and what they are about.
    subcommand_groups: ClassVar[Sequence[tuple[str, str]]] = ()

    def subcommands(self) -> Mapping[str, Subcommand]:
        """By name, in the order of `--help`. A method: what they need is loaded for that command alone."""
        return {}

    def hash_again(self) -> str:
        """Make again, with the first of SEARCH_KEYS, each hash that it keeps beside the search keys.

        In transactions of its own, as often as it is called. Returns how many, a sentence; empty if none was made.
        """
        return ""

    def needs_old_keys(self) -> str:
        """Why an older one of SEARCH_KEYS has to stay when all is made again: a sentence, empty if it need not."""
        return ""

    # --- The console: asked in its process alone, so the pages are imported in these methods ---

    # Its pages in the bar.
    bar: ClassVar[Sequence[InBar]] = ()

    def lists(self) -> Sequence[ModuleType]:
        """Modules whose pages of rows are registered in the admin as they are imported."""
        return ()

    def views(self) -> Mapping[str, Callable[..., HttpResponseBase]]:
        """Its other pages, by the names of their URLs. Each gets the request, and `site`; it checks the permission."""
        return {}

    def banners(self) -> Sequence[str]:
        """Sentences above every page, for users who may see workflows: three at most, by one statement."""
        return ()

    def home(self, request: HttpRequest, read: Counts) -> Iterable[Panel]:
        """Its parts of Home, for users who may see workflows: `well`, `needs`, `going` or `bars`.

        `read` is what Home has read. What it has not is read here, bounded.
        """
        return ()

    def number_awaiting(self, user: User) -> int:
        """How many wait for this user as their second person: one statement."""
        return 0

    def failures(self) -> Iterable[Panel]:
        """Its parts of the page of failures: `below` the groups."""
        return ()

    def charts(self, shown: str, now: datetime, causes: Collection[tuple[str, str, str]]) -> Mapping[Any, Chart]:
        """How often each type, step and code of these has failed, in the range of that key up to `now`."""
        return {}

    def choose(self, verb: str, rows: QuerySet[Any, Any], *, user: User, chosen_by: str) -> str:
        """Store what a user has chosen in a list for one of all `bulk_verbs`: the rows of a query for ids, as of now.

        The address of the page that says what would happen; empty if the feature stores none. Raises NotAllowed.
        """
        return ""

    def found(self, found: Found, user: User) -> Sequence[tuple[str, str]]:
        """What a search has found that is no workflow: a sentence, and an address if this user may follow it."""
        return ()

    # --- A workflow, on its page, in lists and in commands ---

    def filters(self) -> Sequence[type[OfFeature]]:
        """Filters of the list of workflows, after those of its state and type."""
        return ()

    def verbs(self) -> Sequence[Verb]:
        """What people may do with a workflow. The buttons stand in the order of the features, before the rare ones."""
        return ()

    def why_not_retry(self, workflow_id: int) -> str:
        """Why nobody may retry this failed workflow: a sentence, empty if somebody may. By a statement at the most.

        The operation asks it in its transaction, which holds the row.
        """
        return ""

    def foretells(self, verb: str, workflow: Workflow) -> Iterable[str]:
        """What an engine's verb, `retry` or `cancel`, does with what the feature has, in sentences."""
        return ()

    def says(self, workflow: Workflow, attempt: Attempt | None) -> Said:
        """Where the workflow stands. `attempt` is its newest. The first feature with something `instead` is heard."""
        return Said()

    def notes(self, workflow: Workflow, user: User) -> Iterable[Note]:
        """Further lines of its page, as far as this user may see them."""
        return ()

    def panels(self, workflow: Workflow, user: User) -> Iterable[Panel]:
        """Its parts of that page, as far as this user may see them: `standing`, `caller` or `connections`."""
        return ()

    def dialogues(self) -> Mapping[str, Dialogue]:
        """The questions that the feature asks people: how each type of task is shown."""
        return {}


def installed() -> tuple[Extension, ...]:
    """The extensions of this release, in the order in which they are asked."""
    from workflows.features.installed import EXTENSIONS  # the one import from below, when it is first needed

    return EXTENSIONS


def of_workers() -> tuple[Feature, ...]:
    """What takes part in the claims of this release, in the order in which it is asked."""
    from workflows.features.installed import FEATURES  # as above

    return FEATURES
