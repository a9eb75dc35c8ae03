"""CONTENT: what a workflow stores about a person, in all tables, and how it is emptied (docs/data.md).

An emptied workflow still shows that it existed and what it did: its times, outcome and steps, the users who decided,
and each charge with its amount and reference. Its idempotency key stays, so that a repeat is not charged again. The
hashes of its business key stay while they can decide something: after a failure that left a charge, and while a later
submission may be a duplicate of a completed one.

The caller has locked the rows and checked that nothing is unsettled (`retention.unsettled`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workflows.definition import WorkflowDefinition, definitions, money_in, value_at
from workflows.errors import WorkflowCancelled
from workflows.extension import installed
from workflows.features.business_key import holders
from workflows.models import Effect, OriginalPayload, Workflow
from workflows.postgres.statements import execute
from workflows.redaction import masked_reference, private_part
from workflows.search import search_keys
from workflows.search.spent_keys import spent_key
from workflows.state import transitions

# Replaces free text of a person, or of the author of a step.
DELETED = "(deleted)"


def _deleted(column: str) -> str:
    """SQL: DELETED in place of a column's text, or the empty text if it was empty."""
    return f"CASE WHEN {column} = '' THEN '' ELSE '{DELETED}' END"


# First the rows found by columns that the workflow is about to lose. Each part uses an index: OR would read all.
_SIGNALS = """
    DELETE FROM workflows_signal WHERE id IN (
        SELECT id FROM workflows_signal WHERE workflow_id = ANY (%(ids)s)
        UNION ALL
        SELECT s.id FROM workflows_workflow w JOIN workflows_signal s USING (linking_id)
         WHERE w.id = ANY (%(ids)s) AND s.linking_id IS NOT NULL AND s.closed_at IS NOT NULL
        UNION ALL
        SELECT s.id FROM workflows_workflow w JOIN workflows_signal s USING (linking_id)
         WHERE w.id = ANY (%(ids)s) AND s.linking_id IS NOT NULL AND s.closed_at IS NULL
           AND (%(later_too)s OR s.created_at <= w.completed_at) AND NOT EXISTS (
               SELECT FROM workflows_workflow other
                WHERE other.linking_id = w.linking_id AND other.status = 'PENDING'))"""
_SEARCH_KEYS = """
    DELETE FROM workflows_searchkey k USING unnest(%(hashes)s::bytea[], %(of)s::bigint[]) AS own (hash, id)
     WHERE k.hash = own.hash AND k.workflow_id = own.id"""
# Each statement uses an index that begins with the workflow. The triggers allow such a change of events, corrections
# and accesses only once the row is emptied.
_OURS = [
    """UPDATE workflows_effect
          SET error_message = '', result = CASE WHEN result IS NOT NULL THEN (
              SELECT coalesce(jsonb_object_agg(key, value), '{}') FROM jsonb_each(result)
               WHERE key = ANY (%(references)s) OR key = 'reference' AND undo) END
        WHERE workflow_id = ANY (%(ids)s)""",
    f"""UPDATE workflows_wait SET waiting_for = {_deleted("waiting_for")}, result = '{{}}'
        WHERE workflow_id = ANY (%(ids)s)""",  # noqa: S608 (ours)
    f"""UPDATE workflows_manualtask SET question = '{DELETED}', facts = '[]', reason = {_deleted("reason")},
              held = NULL
        WHERE workflow_id = ANY (%(ids)s)""",  # noqa: S608 (ours)
    f"""UPDATE workflows_attempt
          SET steps = (SELECT jsonb_agg(CASE WHEN step ->> 'error_message' <> ''
                                        THEN step || '{{"error_message": "{DELETED}"}}' ELSE step END ORDER BY number)
                         FROM jsonb_array_elements(steps) WITH ORDINALITY AS each (step, number))
        WHERE workflow_id = ANY (%(ids)s) AND steps <> '[]'""",  # noqa: S608 (ours)
    """UPDATE workflows_event SET detail = workflows_emptied_detail(detail)
        WHERE workflow_id = ANY (%(ids)s) AND detail <> '{}'""",
    "UPDATE workflows_access SET detail = detail - 'purpose' WHERE workflow_id = ANY (%(ids)s) AND detail ? 'purpose'",
]


def _empty() -> list[str]:
    return [*(sql for each in installed() for sql in each.empties), *_OURS]


def empty(ids: Sequence[int], *, later_too: bool = False) -> None:
    """Empty the content of these workflows, in the caller's transaction.

    `later_too`: also delete signals to their linking ids that came after their end, and may be for a later workflow.
    """
    parameters: dict[str, Any] = {"ids": list(ids), "references": _references(), "later_too": later_too}
    payloads, business_keys, errors, found_by, compared_by = [], [], [], [], []
    columns = ("id", "last_error_message", "workflow_type", "tenant", "business_key", "payload")
    rows = Workflow.objects.filter(pk__in=ids).values_list(*columns)
    found = {pk: rest for pk, *rest in rows}
    as_first_sent = dict(OriginalPayload.objects.filter(workflow__in=ids).values_list("workflow_id", "payload"))
    _mask_references({pk: (workflow_type, payload) for pk, (_, workflow_type, *_, payload) in found.items()})
    for pk in parameters["ids"]:
        error, workflow_type, tenant, business_key, payload = found[pk]
        errors.append(_without_reason(error))
        definition = definitions().get(workflow_type)
        payloads.append(json.dumps(money_in(definition, payload)))
        business_keys.append(business_key and spent_key(workflow_type, tenant, business_key))
        if definition:
            for sent in (payload, as_first_sent.get(pk, {})):
                found_by += [(each, pk) for each in _hashes(definition, sent)]
                hashes = holders.hashes_in(definition, tenant, sent)
                compared_by += [(each, pk, definition.within) for each, _ in hashes]
    execute(_SIGNALS, parameters)
    transitions.empty(ids, payloads=payloads, business_keys=business_keys, errors=errors)
    if found_by:
        execute(_SEARCH_KEYS, dict(zip(("hashes", "of"), map(list, zip(*found_by, strict=True)), strict=True)))
    holders.forget(compared_by)
    for sql in _empty():
        execute(sql, parameters)


def _without_reason(error: str) -> str:
    """An error's message as deleted, but with the user who cancelled the workflow."""
    by, told, _ = error.partition(": ")
    if not error.startswith(WorkflowCancelled.BY):
        return error and DELETED
    return f"{by}: {DELETED}" if told else error


def _mask_references(sent: Mapping[int, tuple[str, Any]]) -> None:
    """Mask in the references of charges, refunds and reversals what they repeat of the payload, as pages do."""
    names = [*_references(), "reference"]
    for effect in Effect.objects.filter(workflow__in=sent, result__has_any_keys=names).only(
        "workflow", "undo", "result"
    ):
        workflow_type, payload = sent[effect.workflow_id]
        definition = definitions().get(workflow_type)
        private = private_part(payload, definition.public_fields if definition else ())
        result = effect.result or {}
        typed = {"reference"} if effect.undo else set()
        masked = {
            name: shown
            for name in names
            if (value := result.get(name))
            and (shown := masked_reference(value, private)) != value
            and (name in typed or shown != masked_reference(value))
        }
        if masked:
            kept = {name: result[name] for name in names if name in result}  # only the references, even for a moment
            Effect.objects.filter(pk=effect.pk).update(result=kept | masked)


def _references() -> list[str]:
    """The fields of results that have the references of charges and refunds."""
    money = [each.wording.money for each in definitions().values() if each.wording.money]
    return sorted({name for each in money for name in (each.reference, each.refund)})


def _hashes(definition: WorkflowDefinition, payload: Mapping[str, Any]) -> Iterator[bytes]:
    """The search keys of the payload, under each of SEARCH_KEYS."""
    for kind, key in definition.search_keys.items():
        yield from search_keys.hashes_to_find(kind, key.read(value_at(payload, key.field))[:1])
