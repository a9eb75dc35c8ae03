from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onboarding.sandbox.server import Request, Sandbox
from onboarding.sandbox.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def test_a_transaction_that_breaks_off_leaves_nothing(store: Store) -> None:
    def break_off() -> None:
        with store.transaction():
            store.put("card", "1", {"token": "tok_visa"})
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert store.get("card", "1") is None


def test_transactions_come_one_after_the_other(store: Store) -> None:
    store.put("count", "1", {"n": 0})

    def add_one() -> None:
        with store.transaction():
            n = (store.get("count", "1") or {})["n"]
            time.sleep(0.01)
            store.put("count", "1", {"n": n + 1})

    threads = [threading.Thread(target=add_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.get("count", "1") == {"n": 8}


def test_a_change_and_its_effect_are_one(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    account = sandbox.answer(Request("POST", "/_accounts", {}, b'{"email": "a@b.example"}'))[0].body
    body = f'{{"patient_uuid": "{account["patient_uuid"]}", "card_token": "tok_visa"}}'.encode()
    attach = Request("POST", "/payments/cards", {"idempotency-key": "key"}, body)
    sandbox.store._run("CREATE TRIGGER full BEFORE INSERT ON performed BEGIN SELECT RAISE (ABORT, 'disk full'); END")
    with pytest.raises(Exception, match="disk full"):
        sandbox.answer(attach)
    assert sandbox.store.all("card") == []
    sandbox.store._run("DROP TRIGGER full")
    assert sandbox.answer(attach)[0].status == 201
    assert len(sandbox.store.effects()) == 1
    sandbox.store.close()
