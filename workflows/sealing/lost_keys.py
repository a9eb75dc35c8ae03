"""LOST KEYS: what they opened is not there any more, because a restore has lost it. A person has them deleted.

A key and what is sealed under it are stored by one statement: one snapshot sees both, or neither.
"""

from __future__ import annotations

from workflows.errors import NotAllowed
from workflows.postgres.jsonb import SEALED
from workflows.postgres.statements import execute, fetch_row

_OF_ENVELOPE = "split_part({} ->> '" + SEALED + "', ':', 1) = k.idempotency_key::text"
_LOST = f"""
    SELECT idempotency_key, wrapped FROM workflows_contentkey k
     WHERE NOT EXISTS (SELECT FROM workflows_workflow w WHERE w.idempotency_key = k.idempotency_key)
       AND NOT EXISTS (SELECT FROM workflows_signal s WHERE {_OF_ENVELOPE.format("s.payload")})
       AND NOT EXISTS (SELECT FROM workflows_undeliveredmessage m WHERE {_OF_ENVELOPE.format("m.headers")})"""  # noqa: S608 (ours)
# Compared with what was found: the intake may be storing a row under such a key just now, and replaces it.
_FORGET = f"""
    WITH lost AS MATERIALIZED ({_LOST})
    DELETE FROM workflows_contentkey k USING lost
     WHERE k.idempotency_key = lost.idempotency_key AND k.wrapped = lost.wrapped"""  # noqa: S608 (ours)
# Tables get their primary keys when they are loaded; of those with content, the workflows are loaded last.
_IS_LOADED = """
    SELECT EXISTS (SELECT FROM workflows_workflow)
       AND 3 = (SELECT count(*) FROM pg_index
                 WHERE indisprimary AND indrelid IN ('workflows_workflow'::regclass, 'workflows_signal'::regclass,
                                                     'workflows_undeliveredmessage'::regclass))"""


def count() -> int:
    """How many keys open nothing that is there."""
    (number,) = fetch_row(f"SELECT count(*) FROM ({_LOST}) lost")  # noqa: S608 (ours)
    return int(number)


def forget() -> int:
    """Delete them; returns how many there were. Raises NotAllowed while a backup is being loaded."""
    if fetch_row(_IS_LOADED) != (True,):
        raise NotAllowed("A backup is being loaded: what is still to come may need its key.")
    return execute(_FORGET, ())
