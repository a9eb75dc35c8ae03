"""The sandbox's state on disk: one SQLite file, so that a change, its effect and its answer are one commit."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

_SCHEMA = """
    CREATE TABLE IF NOT EXISTS record (kind TEXT, id TEXT, data TEXT NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS performed (
        id INTEGER PRIMARY KEY, service TEXT NOT NULL, operation TEXT NOT NULL, idempotency_key TEXT NOT NULL,
        patient_uuid TEXT NOT NULL, at TEXT NOT NULL, fingerprint TEXT NOT NULL, answer TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS performed_for_patient ON performed (patient_uuid);
    CREATE INDEX IF NOT EXISTS performed_since ON performed (at);
    CREATE INDEX IF NOT EXISTS performed_under_key ON performed (service, idempotency_key, id);
"""

EFFECT_FILTERS = ("service", "operation", "idempotency_key", "patient_uuid")
_EFFECT = (*EFFECT_FILTERS, "at")


@dataclass(frozen=True, slots=True)
class Performed:
    """A change that was performed under a key: the request and the answer."""

    fingerprint: str
    answer: dict[str, Any]


class Store:
    """One connection and one lock: operations run one after the other."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._db = sqlite3.connect(
            directory / "sandbox.sqlite3", timeout=2, check_same_thread=False, isolation_level=None
        )
        # Without the lock, two sandboxes could use one directory without noticing each other.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        # A commit reaches the kernel before it is answered: SIGKILL loses nothing. A power cut may.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)
        self.secret = self._own_secret()

    def close(self) -> None:
        """Close for good. The lock stays locked: a later request waits, unanswered, for the end of the process."""
        self._lock.acquire()
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction, during which no other one runs."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def get(self, kind: str, id: str) -> dict[str, Any] | None:
        rows = self._run("SELECT data FROM record WHERE kind = ? AND id = ?", kind, id)
        return json.loads(rows[0][0]) if rows else None

    def put(self, kind: str, id: str, data: dict[str, Any]) -> None:
        self._run("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", kind, id, json.dumps(data))

    def delete(self, kind: str, id: str) -> None:
        self._run("DELETE FROM record WHERE kind = ? AND id = ?", kind, id)

    def all(self, kind: str) -> list[dict[str, Any]]:
        return [json.loads(data) for (data,) in self._run("SELECT data FROM record WHERE kind = ? ORDER BY id", kind)]

    def clear(self, kind: str) -> None:
        self._run("DELETE FROM record WHERE kind = ?", kind)

    def performed(self, service: str, idempotency_key: str, since: str = "") -> Performed | None:
        """The last change under a key, `at` or after `since`; an older one is forgotten."""
        rows = self._run(
            """SELECT fingerprint, answer FROM performed WHERE service = ? AND idempotency_key = ? AND at >= ?
                ORDER BY id DESC LIMIT 1""",
            *(service, idempotency_key, since),
        )
        return Performed(rows[0][0], json.loads(rows[0][1])) if rows else None

    def add(self, service: str, operation: str, idempotency_key: str, at: str, performed: Performed) -> None:
        """Add a change to the effect log. Its answer names the patient."""
        self._run(
            "INSERT INTO performed VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)",
            *(service, operation, idempotency_key, performed.answer["patient_uuid"], at),
            *(performed.fingerprint, json.dumps(performed.answer)),
        )

    def effects(self, since: str = "", **equal: str) -> list[dict[str, str]]:
        """The effects in order, `at` or after `since`. `equal` are some of EFFECT_FILTERS."""
        names = [name for name in EFFECT_FILTERS if name in equal]
        conditions = " AND ".join(["at >= ?", *(f"{name} = ?" for name in names)])
        sql = f"SELECT {', '.join(_EFFECT)} FROM performed WHERE {conditions} ORDER BY id"  # noqa: S608 (our own names)
        rows = self._run(sql, since, *(equal[name] for name in names))
        return [dict(zip(_EFFECT, row, strict=True)) for row in rows]

    def changes(self, service: str, operation: str, since: str, after: int, limit: int) -> list[dict[str, Any]]:
        """At most `limit` changes of a kind after the id `after`, `at` or after `since`."""
        rows = self._run(
            """SELECT id, idempotency_key, at, answer FROM performed
                WHERE service = ? AND operation = ? AND at >= ? AND id > ? ORDER BY id LIMIT ?""",
            *(service, operation, since, after, limit),
        )
        return [{"id": id, "key": key, "at": at, "answer": json.loads(answer)} for id, key, at, answer in rows]

    def _own_secret(self) -> str:
        """The key that signs tokens. It is stored, so that tokens outlive a restart."""
        if (kept := self.get("secret", "tokens")) is None:
            kept = {"secret": token_hex(32)}
            self.put("secret", "tokens", kept)
        return str(kept["secret"])

    def _run(self, sql: str, *values: str | int) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()
