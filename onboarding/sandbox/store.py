"""What the sandbox knows, on disk: one SQLite file, so that a change, its effect and its answer are one commit."""

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
    CREATE TABLE IF NOT EXISTS answer (
        service TEXT, idempotency_key TEXT, fingerprint TEXT NOT NULL, status INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (service, idempotency_key)) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS effect (
        id INTEGER PRIMARY KEY, service TEXT NOT NULL, operation TEXT NOT NULL, idempotency_key TEXT NOT NULL,
        patient_uuid TEXT NOT NULL, at TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS effect_of_patient ON effect (patient_uuid);
    CREATE INDEX IF NOT EXISTS effect_since ON effect (at);
    CREATE INDEX IF NOT EXISTS effect_of_key ON effect (service, idempotency_key, at);
"""

EFFECT_FILTERS = ("service", "operation", "idempotency_key", "patient_uuid")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    fingerprint: str
    status: int
    body: dict[str, Any]


class Store:
    """One connection, one lock: what happens here happens one after the other."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._db = sqlite3.connect(
            directory / "sandbox.sqlite3", timeout=2, check_same_thread=False, isolation_level=None
        )
        # Two sandboxes on one directory would each believe to be the only one.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        # A commit is in the kernel's hands before it is answered: SIGKILL loses nothing. A power cut may.
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.executescript(_SCHEMA)
        self.secret = self._own_secret()

    def close(self) -> None:
        """Close for good. The lock stays taken: a later request waits for the end of the process, unanswered."""
        self._lock.acquire()
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: all of it or nothing, and no other one meanwhile."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def get(self, kind: str, id: str) -> dict[str, Any] | None:
        row = self._one("SELECT data FROM record WHERE kind = ? AND id = ?", kind, id)
        return json.loads(row[0]) if row else None

    def put(self, kind: str, id: str, data: dict[str, Any]) -> None:
        self._run("INSERT OR REPLACE INTO record VALUES (?, ?, ?)", kind, id, json.dumps(data))

    def delete(self, kind: str, id: str) -> None:
        self._run("DELETE FROM record WHERE kind = ? AND id = ?", kind, id)

    def all(self, kind: str) -> list[dict[str, Any]]:
        with self._lock:
            rows = self._db.execute("SELECT data FROM record WHERE kind = ? ORDER BY id", (kind,)).fetchall()
        return [json.loads(data) for (data,) in rows]

    def clear(self, kind: str) -> None:
        self._run("DELETE FROM record WHERE kind = ?", kind)

    def answer(self, service: str, idempotency_key: str, since: str = "") -> StoredAnswer | None:
        """The answer to a key whose change was performed `at` or after `since`; an older one is forgotten."""
        row = self._one(
            """SELECT fingerprint, status, body FROM answer a WHERE service = ? AND idempotency_key = ? AND EXISTS (
                   SELECT 1 FROM effect e
                    WHERE e.service = a.service AND e.idempotency_key = a.idempotency_key AND e.at >= ?)""",
            service,
            idempotency_key,
            since,
        )
        return StoredAnswer(row[0], row[1], json.loads(row[2])) if row else None

    def keep_answer(self, service: str, idempotency_key: str, answer: StoredAnswer) -> None:
        """In the stead of one that is forgotten."""
        self._run(
            "INSERT OR REPLACE INTO answer VALUES (?, ?, ?, ?, ?)",
            service,
            idempotency_key,
            answer.fingerprint,
            answer.status,
            json.dumps(answer.body),
        )

    def add_effect(self, service: str, operation: str, idempotency_key: str, patient_uuid: str, at: str) -> None:
        self._run(
            "INSERT INTO effect (service, operation, idempotency_key, patient_uuid, at) VALUES (?, ?, ?, ?, ?)",
            service,
            operation,
            idempotency_key,
            patient_uuid,
            at,
        )

    def effects(self, since: str = "", **equal: str) -> list[dict[str, str]]:
        """Performed effects in their order, `at` or after `since`; `equal` are some of EFFECT_FILTERS."""
        columns = ("service", "operation", "idempotency_key", "patient_uuid", "at")
        conditions = " AND ".join(["at >= ?", *(f"{name} = ?" for name in EFFECT_FILTERS if name in equal)])
        values = [since, *(equal[name] for name in EFFECT_FILTERS if name in equal)]
        sql = f"SELECT {', '.join(columns)} FROM effect WHERE {conditions} ORDER BY id"  # noqa: S608 (our own names)
        with self._lock:
            return [dict(zip(columns, row, strict=True)) for row in self._db.execute(sql, values)]

    def _own_secret(self) -> str:
        """What tokens are signed with: they outlive a restart, as everything here does."""
        if (kept := self.get("secret", "tokens")) is None:
            kept = {"secret": token_hex(32)}
            self.put("secret", "tokens", kept)
        return str(kept["secret"])

    def _one(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        with self._lock:
            row: tuple[Any, ...] | None = self._db.execute(sql, values).fetchone()
            return row

    def _run(self, sql: str, *values: Any) -> None:
        with self._lock:
            self._db.execute(sql, values)
