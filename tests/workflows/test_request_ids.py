"""What a request is called."""

from __future__ import annotations

import pytest

from workflows import request_ids

KEY = "3F0C8F0E-9c3e-4f6e-8a51-0d3c6a3a9b11"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"x-request-id": "Shop_7.a-b", "traceparent": TRACEPARENT}, "Shop_7.a-b"),
        ({"x-request-id": "x" * 64}, "x" * 64),
        ({"traceparent": TRACEPARENT, "idempotency-key": KEY}, TRACE),
        ({"idempotency-key": KEY}, "3f0c8f0e9c3e4f6e8a510d3c6a3a9b11"),
    ],
)
def test_a_request_is_called_as_its_headers_say(headers: dict[str, str], name: str) -> None:
    assert request_ids.of(headers) == name


@pytest.mark.parametrize("sent", ["", "x" * 65, "a\n", "a,a", "ada@example.com", "é"])
def test_a_name_that_is_not_fit_for_a_log_or_a_header_is_passed_over(sent: str) -> None:
    assert request_ids.of({"x-request-id": sent, "traceparent": TRACEPARENT}) == TRACE


def test_a_traceparent_that_is_not_valid_is_passed_over() -> None:
    sent = {"traceparent": f"ff{TRACEPARENT[2:]}", "idempotency-key": "7"}
    names = {request_ids.of(sent) for _ in range(2)}
    assert len(names) == 2
    assert all(len(name) == 32 and int(name, 16) for name in names)
    assert TRACE not in names
