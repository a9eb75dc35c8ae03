"""The `bulk` subcommands: one operation on many workflows, chosen by the same filters as in the console's lists."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Q
from django.utils import timezone

from workflows.definition import definitions
from workflows.errors import NotAllowed
from workflows.features.bulk import operations as bulk
from workflows.features.bulk import results as bulk_results
from workflows.features.bulk import telling as bulk_operations
from workflows.health import recent_failures, selecting
from workflows.management.arguments import time_or_ago
from workflows.management.workflow.subcommand import DONE, NOT_ALL, Subcommand, number
from workflows.models import BulkItem, BulkOperation, State, Workflow
from workflows.models.failure import Cause, of_code
from workflows.models.workflow import UNACKNOWLEDGED, is_parked_on
from workflows.operations.bulk_verbs import BulkVerb, verbs
from workflows.operations.guards import VIEW, VIEW_BULK, require

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Outcome = BulkItem.Outcome
# Seconds between two checks of the progress.
LOOK_EVERY = 1.0
LISTED = 20
UNDER_WAY = (State.QUEUED, State.RUNNING, State.RETRYING, State.WAITING, State.PARKED)
# --- Start one ------------------------------------------------------------------------------------------


def _add_filters(parser: ArgumentParser, *, verb: BulkVerb) -> None:
    filters = parser.add_argument_group("which workflows", "Those that match all of these; at least one is needed.")
    filters.add_argument("--type", metavar="TYPE", help="of this type, by its name")
    filters.add_argument("--queue", metavar="QUEUE", help="of this queue")
    filters.add_argument("--step", metavar="STEP", help="at this step")
    if verb.among == "failures":
        filters.add_argument("--code", metavar="CODE", help="with this error code; the class of an error without one")
        filters.add_argument("--release", metavar="RELEASE", help="failed by this release")
        filters.add_argument(
            *("--since",),
            type=time_or_ago,
            metavar="TIME",
            help="all that failed since: 3h, or 2026-03-02T09:40Z; without it those that nobody has acknowledged",
        )
        filters.add_argument("--until", type=time_or_ago, metavar="TIME", help="with --since: and before that")
    else:
        filters.add_argument("--state", choices=[each.value for each in UNDER_WAY], help="in this state")
        filters.add_argument("--parked-on", metavar="SERVICE", help="parked until this service is up")
    parser.add_argument("--pace", type=_pace, metavar="N", help=f"so many a second at the most, up to {bulk.FASTEST}")
    parser.add_argument("--detach", action="store_true", help="do not wait until it is done")
    parser.add_argument("stray", nargs="*", help=SUPPRESS)


def _pace(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= bulk.FASTEST:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a pace: it is between 1 and {bulk.FASTEST} a second")


def _start(user: User, options: dict[str, Any], *, verb: BulkVerb) -> dict[str, Any]:
    require(user, VIEW)
    if options["stray"]:
        raise NotAllowed(f"This starts one by filters. To end bulk operation {options['stray'][0]}: bulk stop.")
    arms, chosen_by = _chosen(verb, options)
    given = [options[name] for name in ("type", "step", "code")] if verb.among == "failures" else [None]
    cause = "" if None in given else Cause(*map(str, given)).name
    made = bulk.choose(verb.name, selecting.ids_of(arms), user=user, chosen_by=chosen_by, cause=cause)
    pace = options["pace"] or bulk.usual_pace(verb.name)
    sentences = list(bulk_operations.of_start(made, user, pace=pace))
    if not options["dry_run"]:
        for line in sentences:
            options["say"](line)
    if refusal := bulk_operations.why_not_start(made, user):
        raise NotAllowed(refusal)
    done = bulk.start(made.pk, user=user, reason=options["reason"], pace=pace)
    if options["dry_run"]:
        return {"chosen_by": chosen_by, "chosen": made.selected, "what_happens": sentences}
    options["say"](f"Bulk operation {made.pk}. {done}")
    if not options["detach"]:
        _follow(made, options["say"])
    return _standing(made.pk)


def _chosen(verb: BulkVerb, options: dict[str, Any]) -> tuple[list[selecting.Rows], str]:
    """The chosen rows, in arms, and a description of the filters."""
    if verb.among == "failures" and options["until"] and not options["since"]:
        raise NotAllowed("Say --since, too: the failures of a time have a start.")
    given = {name: options[name] for name in (*_CONDITIONS, "state") if options.get(name)}
    named = {name.replace("_", " "): value for name, value in given.items()}
    conditions = [_CONDITIONS[name](value) for name, value in given.items() if name in _CONDITIONS]
    rows: Any = Workflow.objects.filter(*conditions)
    if verb.among == "under way":
        if not given.keys() & {"state", "parked_on"}:
            raise NotAllowed("Give --state (queued, for example) or --parked-on.")
        arms = selecting.arms_in_state(rows, given["state"]) if "state" in given else [rows]
    elif options["since"]:
        until = options["until"] or timezone.now()
        named["failed"] = f"{options['since']:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"
        arms = [recent_failures.failed_between(rows, options["since"], until)]
    elif named:
        named["urgency"] = "failed and not acknowledged"
        arms = [rows.filter(UNACKNOWLEDGED)]
    else:
        raise NotAllowed("Say which: give at least one filter, such as --code or --since.")
    return arms, "; ".join(f"{name}: {value}" for name, value in named.items())


def _of_type(name: str) -> Q:
    if name not in definitions() and not Workflow.objects.filter(workflow_type=name).exists():
        raise NotAllowed(f"There is no type {name}.")
    return Q(workflow_type=name)


_CONDITIONS: dict[str, Callable[[str], Q]] = {
    "type": _of_type,
    "queue": lambda name: Q(queue=name),
    "step": lambda name: Q(current_step=name),
    "code": of_code,
    "release": lambda name: Q(failed_release=name),
    "parked_on": is_parked_on,
}


def _follow(made: BulkOperation, say: Callable[[str], object]) -> None:
    """Print the progress until the operation ends or waits for a person. Ctrl-C leaves it running."""
    said = ""
    try:
        while True:
            made.refresh_from_db()
            if made.state != BulkOperation.State.RUNNING:
                return
            sentence = bulk_operations.sentence(made, *_counted(made))
            if sentence != said:
                say(sentence)
                said = sentence
            sleep(LOOK_EVERY)
    except KeyboardInterrupt:
        say(
            f"It goes on without this command. To look: manage.py workflow bulk show {made.pk}; "
            f"to end it: manage.py workflow bulk stop {made.pk}."
        )
        raise


# --- Look at one, or change it --------------------------------------------------------------------------


def _add_id(parser: ArgumentParser) -> None:
    parser.add_argument("bulk", metavar="NUMBER", help="of the bulk operation, as bulk list has it")


def _standing(bulk_id: int) -> dict[str, Any]:
    row = BulkOperation.objects.select_related("asked_by", "approved_by").filter(pk=bulk_id).first()
    if row is None:
        raise NotAllowed(f"There is no bulk operation {bulk_id}.")
    counted, became = _counted(row)
    whys = row.items.exclude(why="").order_by().values_list("outcome", "why").annotate(number=Count("pk"))
    all_done = row.state == BulkOperation.State.DONE and counted[Outcome.DONE] == row.selected
    under_way = row.state == BulkOperation.State.RUNNING
    return {
        **_line(row),
        "stands": bulk_operations.sentence(row, counted, became),
        **{name: counted[outcome] for outcome, name in _COUNTS.items()},
        "became": [{"what": bulk_operations.result(row, name), "number": became[name]} for name in became],
        "why": [{"outcome": bulk_operations.label(row, of), "why": why, "number": number} for of, why, number in whys],
        "approved_by": row.approved_by.get_username() if row.approved_by else "",
        "exit_code": DONE if all_done or under_way else NOT_ALL,
    }


# "Accepted" says only that the operation was carried out on the item. `became` says how it ended.
_COUNTS = {Outcome.OPEN: "open", Outcome.DONE: "accepted", Outcome.SKIPPED: "skipped", Outcome.FAILED: "errors"}


def _counted(row: BulkOperation) -> tuple[dict[str, int], Counter[str]]:
    return bulk.outcomes(row)[row.pk], bulk_results.became(row)[row.pk]


def _line(row: BulkOperation) -> dict[str, Any]:
    return {
        "bulk": row.pk,
        "what": bulk_operations.name_of(row),
        "state": "carried_out" if row.state == BulkOperation.State.DONE else row.state,
        "chosen_by": row.chosen_by,
        "asked_by": row.asked_by.get_username(),
        "asked_at": row.asked_at.isoformat(timespec="seconds"),
        "reason": row.reason,
        "pace": row.pace,
        "selected": row.selected,
    }


def _list(user: User, options: dict[str, Any]) -> dict[str, Any]:
    require(user, VIEW_BULK)
    newest = list(BulkOperation.objects.filter(verb__in=verbs()).select_related("asked_by").order_by("-id")[:LISTED])
    became = bulk_results.became(*bulk_results.few_enough(newest))
    return {
        "bulk_operations": [
            {**_line(row), "became": bulk_operations.results(row, became.get(row.pk, {}))} for row in newest
        ]
    }


def _show(user: User, options: dict[str, Any]) -> dict[str, Any]:
    require(user, VIEW_BULK)
    return {**_standing(number(options["bulk"], "bulk operation")), "exit_code": DONE}


def _change(user: User, options: dict[str, Any], *, operation: Callable[..., str | None]) -> dict[str, Any]:
    bulk_id = number(options["bulk"], "bulk operation")
    done = operation(bulk_id, user=user, reason=options["reason"])
    return {**_standing(bulk_id), **({"done_now": done} if done else {}), "exit_code": DONE}


def _of_many() -> Iterator[tuple[str, Subcommand]]:
    for among, what in (("failures", "failed workflows"), ("under way", "workflows that are under way")):
        for verb in verbs().values():
            if verb.among == among:
                about = f"{verb.noun.capitalize()} of many {what}, chosen by filters."
                arguments, run = partial(_add_filters, verb=verb), partial(_start, verb=verb)
                yield f"bulk {verb.name.replace('_', '-')}", Subcommand(about, arguments, run, list(verb.examples))
    yield "bulk list", Subcommand(f"The newest {LISTED} bulk operations.", lambda parser: None, _list, changes=False)
    yield (
        "bulk show",
        Subcommand("How far one is, and what came of it.", _add_id, _show, ["bulk show 12"], changes=False),
    )
    for name, operation, about in (
        ("pause", bulk.pause, "Carry out no further item until it is resumed."),
        ("resume", bulk.resume, "Go on with a paused one."),
        ("stop", bulk.stop, "Cancel the rest of it. What is done stays."),
        ("approve", bulk.approve, "Let one start that another user has asked for."),
    ):
        yield f"bulk {name}", Subcommand(about, _add_id, partial(_change, operation=operation), [f"bulk {name} 12"])


SUBCOMMANDS = dict(_of_many())
