"""ERASE: two people empty all that a person has sent under an e-mail address, because the person asks for it.

One asks, with the address or with a workflow that has it; another approves what was found. The erasure, the two users
and a hash of the address stay on record. If anything is unsettled or under a legal hold, nothing at all is erased.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from django.db.models import F, Q, QuerySet, Value
from django.views.decorators.debug import sensitive_variables

from workflows.errors import NotAllowed
from workflows.features.queues import messages
from workflows.features.queues.messages import HELD
from workflows.features.retention.content import empty
from workflows.features.retention.holds import addresses_in, let_holds_wait
from workflows.features.retention.unsettled import why_they_stay, words_of_reasons
from workflows.models import Erasure, OriginalPayload, SearchKeyHash, UndeliveredMessage, Workflow
from workflows.models.clock import ClockTimestamp
from workflows.models.deputy import count_as_one
from workflows.operations.guards import ERASE, require, require_reason, short_transaction, stated, why_not_second
from workflows.postgres.statements import execute, fetch_all
from workflows.search import search_keys

if TYPE_CHECKING:
    from django.contrib.auth.models import User

# Rows in one transaction: more cannot be one person's.
MOST = 200
# The most erasures that are listed for one user.
LISTED = 50
# So many workflows get a sentence why they stay.
TOLD = 5

_WITH_ADDRESS = """
    SELECT DISTINCT w.id FROM workflows_searchkey k JOIN workflows_workflow w ON w.id = k.workflow_id
     WHERE k.hash = ANY (%s::bytea[]) AND w.emptied_at IS NULL ORDER BY w.id LIMIT %s"""
# The roots, the workflows that they started, and those that started them.
_FAMILY = """
    WITH RECURSIVE found AS (
        SELECT w.id, w.parent_id FROM workflows_workflow w WHERE w.id = ANY (%(ids)s)
         UNION
        SELECT w.id, w.parent_id
          FROM found JOIN workflows_workflow w ON w.id = found.parent_id OR w.parent_id = found.id)
    SELECT w.id FROM workflows_workflow w JOIN found USING (id)
     WHERE w.emptied_at IS NULL ORDER BY w.id LIMIT %(limit)s"""
_LOCK = "SELECT id FROM workflows_workflow WHERE id = ANY (%s) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"


@sensitive_variables("email")
def ask(*, user: User, reason: str, email: str = "", workflow_id: int | None = None) -> Erasure:
    """Ask to erase all of this address, or of a workflow's address. Another user has to approve it."""
    require(user, ERASE)
    require_reason(reason, "an erasure")
    if "@" in reason:
        raise NotAllowed("The reason stays: name nobody in it. The number of a ticket, say.")
    hashes, ids = _of_workflow(workflow_id) if workflow_id is not None else _of_address(email)
    refused = _messages(hashes)
    found = _found(hashes, ids, or_messages=bool(refused))
    if why := _why_not_these(found, refused):
        raise NotAllowed(why)
    sought = hashes[0] if hashes else b""
    return Erasure.objects.create(hash=sought, workflows=found, messages=refused, reason=stated(reason), asked_by=user)


def messages_found_with(workflow_id: int) -> list[int]:
    """The refused submissions that an erasure with this workflow would include."""
    return _messages(_of_workflow(workflow_id)[0])


def found_with(workflow_id: int) -> list[int]:
    """The workflows that an erasure with this one would include. Raises NotAllowed for none, or too many."""
    return _found(*_of_workflow(workflow_id))


def why_not_ask(workflow_id: int) -> str:
    """Why nobody can ask for an erasure with this workflow now; empty if they can."""
    try:
        hashes, ids = _of_workflow(workflow_id)
        return _why_not_these(_found(hashes, ids), _messages(hashes))
    except NotAllowed as refusal:
        return str(refusal)


def why_not_approve(asked: Erasure, user: User) -> str:
    """Why `user` cannot approve an erasure; empty if they can."""
    if why := why_not_second(asked.asked_by, user, asked.asked_at):
        return why
    if not asked.asked_by.has_perm(ERASE):  # a user who has left has no permission either
        return "The user who has asked for it may not do so any more: ask again."
    return why_unsettled(asked) or _why_other_secret(asked)


def why_unsettled(asked: Erasure) -> str:
    """Why nobody can erase it now; empty if it can be erased."""
    return all_unsettled([asked]).get(asked.pk, "")


def all_unsettled(rows: Sequence[Erasure]) -> dict[int, str]:
    """Those of these erasures that nobody can approve now, by their keys, and why. As many statements for all."""
    stay = why_they_stay(_left_of(*rows)) if rows else {}
    held = _held([each for row in rows for each in row.messages or ()]) if rows else []
    told = {row.pk: _told({pk: stay[pk] for pk in row.workflows if pk in stay}, held, row.messages) for row in rows}
    return {pk: why for pk, why in told.items() if why}


def waiting(*workflow_ids: int) -> QuerySet[Erasure]:
    """The undecided erasures that would include all of these workflows."""
    return _waiting().filter(workflows__contains=workflow_ids)


def _waiting() -> QuerySet[Erasure]:
    return Erasure.objects.filter(state=Erasure.State.ASKED).select_related("asked_by").order_by("id")


def awaiting(user: User) -> list[tuple[Erasure, str]]:
    """The erasures that wait for this user as the second person, and their own that nobody can approve; why, if so."""
    if not user.has_perm(ERASE):
        return []
    as_one = count_as_one(F("asked_by"), Value(user.pk), F("asked_at"))
    rows = list(_waiting().filter(Q(asked_by=user.pk) | ~Q(as_one))[:LISTED])
    why = all_unsettled(rows)
    return [(row, why.get(row.pk, "")) for row in rows if row.asked_by_id != user.pk or row.pk in why]


Sought = tuple[list[bytes], list[int]]


@sensitive_variables("email")
def _of_address(email: str) -> Sought:
    hashes = list(search_keys.hashes_of_address(email))
    if not hashes:
        raise NotAllowed("That is not an e-mail address.")
    return hashes, []


@sensitive_variables("found")
def _of_workflow(workflow_id: int) -> Sought:
    found = Workflow.objects.filter(pk=workflow_id).values_list("workflow_type", "payload").first()
    if found is None:
        raise NotAllowed("There is no such workflow, or what it was sent was deleted already.")
    return list(addresses_in(*found)), [workflow_id]


def _messages(hashes: Sequence[bytes]) -> list[int]:
    """The refused submissions with one of these hashes, also settled ones whose content a legal hold retains."""
    rows = UndeliveredMessage.objects.filter(hashes__overlap=list(hashes)).order_by("pk")
    found = list(rows.values_list("pk", flat=True)[: MOST + 1]) if hashes else []
    if len(found) > MOST:
        raise NotAllowed(f"More than {MOST} refused submissions have this address: that is not a single person.")
    return found


def _held(refused: Sequence[int]) -> list[int]:
    held = f"SELECT id FROM workflows_undeliveredmessage m WHERE id = ANY (%s) AND {HELD} ORDER BY id"  # noqa: S608 (ours)
    return [pk for (pk,) in fetch_all(held, [list(refused)])]


def _found(hashes: Sequence[bytes], ids: Sequence[int], *, or_messages: bool = False) -> list[int]:
    with_address = [pk for (pk,) in fetch_all(_WITH_ADDRESS, [list(hashes), MOST + 1])]
    former = only_as_first_sent(with_address, hashes)
    roots = [*ids, *(pk for pk in with_address if pk not in former)]
    family = fetch_all(_FAMILY, {"ids": roots, "limit": MOST + 1})
    found = sorted({*former, *(pk for (pk,) in family)})
    if not found and not or_messages:
        raise NotAllowed("Nothing of this person is here, or it was deleted already.")
    if len(found) > MOST:
        raise NotAllowed(f"More than {MOST} workflows have this address: that is not a single person.")
    return found


def only_as_first_sent(ids: Collection[int], hashes: Collection[bytes]) -> set[int]:
    """The workflows that were first sent with one of these addresses, and were corrected to another.

    A mistyped address may be somebody else's. That person can have the address erased, but not this patient's data.
    """
    return {pk for pk, first, now in _addresses_of_corrected(ids) if first & set(hashes) and not now & set(hashes)}


def _addresses_of_corrected(ids: Collection[int]) -> Iterator[tuple[int, set[bytes], set[bytes]]]:
    """The corrected ones of these workflows, each with the hashes of its first address and of its present one."""
    sent = OriginalPayload.objects.filter(workflow__in=ids)
    rows = sent.values_list("workflow_id", "workflow__workflow_type", "payload", "workflow__payload")
    for pk, workflow_type, *payloads in rows:
        first, now = ({*addresses_in(workflow_type, payload)} for payload in payloads)
        yield pk, first, now


def _why_other_secret(asked: Erasure) -> str:
    """Why nobody can tell any more which workflows have the address that was asked for; empty if that is known."""
    found = Workflow.objects.filter(pk__in=asked.workflows).values_list("workflow_type", "payload")
    corrected = [first for _, first, _ in _addresses_of_corrected(asked.workflows)]
    known = set().union(*corrected, *(addresses_in(*each) for each in found))
    if asked.hash and corrected and bytes(asked.hash) not in known:
        return "The secret of the search keys has changed since: refuse it, and ask again."
    return ""


def _forget_what_was_first_sent(ids: Collection[int]) -> None:
    sent = OriginalPayload.objects.filter(workflow__in=ids)
    for pk, workflow_type, payload in sent.values_list("workflow_id", "workflow__workflow_type", "payload"):
        hashes = [*addresses_in(workflow_type, payload)]
        SearchKeyHash.objects.filter(workflow_id=pk, hash__in=hashes).delete()
    sent.delete()


def approve(erasure_id: int, *, user: User) -> Erasure:
    """Erase all that a colleague has asked for, or nothing."""
    require(user, ERASE)
    with short_transaction():
        let_holds_wait()
        asked = _open(erasure_id)
        locked = [pk for (pk,) in fetch_all(_LOCK, [asked.workflows])]
        there = Workflow.objects.filter(pk__in=asked.workflows).count()  # some may be deleted for their age
        if len(locked) < there:
            raise NotAllowed("A worker, or somebody else, has one of them in hand just now; try again in a moment.")
        if why := why_not_approve(asked, user):
            raise NotAllowed(why)
        left, left_messages = _left_of(asked), asked.messages or []
        _decide(asked, Erasure.State.DONE, user)
        former = only_as_first_sent(left, [bytes(asked.hash)] if asked.hash else [])
        _forget_what_was_first_sent(former)
        whole = [pk for pk in left if pk not in former]
        # Also by search keys that the payload no longer has, or that this release does not know.
        execute("DELETE FROM workflows_searchkey WHERE workflow_id = ANY (%s)", [whole])
        empty(whole, later_too=True)
        messages.forget(left_messages, user=user, reason=f"Erasure {asked.pk}.")
    return asked


def refuse(erasure_id: int, *, user: User) -> None:
    """Refuse a colleague's erasure, or withdraw one's own."""
    require(user, ERASE)
    with short_transaction():
        _decide(_open(erasure_id), Erasure.State.REFUSED, user)


def _open(erasure_id: int) -> Erasure:
    rows = Erasure.objects.select_for_update(of=("self",)).select_related("asked_by")
    found = rows.filter(pk=erasure_id, state=Erasure.State.ASKED).first()
    if found is None:
        raise NotAllowed("There is no such erasure, or somebody has decided it already.")
    return found


def _decide(asked: Erasure, state: Erasure.State, user: User) -> None:
    Erasure.objects.filter(pk=asked.pk).update(state=state, decided_by=user, decided_at=ClockTimestamp())
    asked.refresh_from_db()


def _left_of(*asked: Erasure) -> list[int]:
    """The ids of their workflows that still have content."""
    ids = {pk for each in asked for pk in each.workflows}
    rows = Workflow.objects.filter(pk__in=ids, emptied_at=None)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def _why_not_these(ids: Sequence[int], refused: Sequence[int] = ()) -> str:
    if why := _told(why_they_stay(ids), _held(refused), refused):
        return why
    asked = (waiting(*ids) if ids else _waiting().filter(messages__contains=list(refused))).first()
    return f"{asked.asked_by.get_username()} has asked for that already: another user approves it." if asked else ""


def _told(stay: Mapping[int, str], held: Sequence[int], of: Sequence[int] | None) -> str:
    """Why they are not erased: what stays of the workflows, else the first held one `of` the refused submissions."""
    known, on = words_of_reasons(), next((each for each in held if each in (of or ())), None)
    if not stay:
        return f"Nothing is erased before all of it can be. A legal hold is on message {on}." if on else ""
    sentences = " ".join(f"Workflow {pk}: {known[why]}." for pk, why in sorted(stay.items())[:TOLD])
    return f"Nothing is erased before all of it can be. {sentences}"
