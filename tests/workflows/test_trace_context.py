"""Which trace a request is in, by its `traceparent`: https://www.w3.org/TR/trace-context/."""

from __future__ import annotations

import pytest

from workflows import trace_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (SENT, SENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-03", SENT),  # a flag that we know nothing of
        (f"00-{TRACE}-{SPAN}-02", f"00-{TRACE}-{SPAN}-00"),
        (f"01-{TRACE}-{SPAN}-01", SENT),  # a later version, which may say more
        (f"cc-{TRACE}-{SPAN}-01-what.the-future-holds", SENT),
        ("", None),
        (TRACE, None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-1", None),
        (f"00-{TRACE}-{SPAN}-0g", None),
        (f"{SENT}-x", None),
        (f"cc-{TRACE}-{SPAN}-01.x", None),
        (f"cc-{TRACE}-{SPAN}-01-{'x' * 8000}", None),
        (f"{SENT}\n", None),
        (f" {SENT}", None),
        (f"{SENT},{SENT}", None),  # sent twice
        (f"00-{TRACE[:-1]}\u0664-{SPAN}-01", None),  # a digit, and no hexadecimal one
    ],
)
def test_a_traceparent_is_read_as_the_standard_says_and_else_passed_over(sent: str, kept: str | None) -> None:
    parent = trace_context.parent_in(sent)
    assert (parent and str(parent)) == kept


@pytest.mark.parametrize(
    ("environ", "stored"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, SENT),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, SENT),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "TRUE"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, ""),
    ],
)
def test_it_is_stored_only_where_something_is_traced(
    environ: dict[str, str], stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert trace_context.to_store({"traceparent": SENT}) == stored
    assert trace_context.to_store({"traceparent": "00"}) == ""
