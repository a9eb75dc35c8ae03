from __future__ import annotations

from pathlib import Path

import pytest

from onboarding.sandbox.server import Request, Sandbox


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
