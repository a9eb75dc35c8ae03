import sys
from types import SimpleNamespace
from typing import Any

import pytest

from workflows.features.traces import traces
from workflows.models import Attempt, Workflow


def test_without_the_extra_there_are_none_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "workflows.features.traces.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    assert traces.begin() is None
    assert caplog.text == "", "nobody has asked for them"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert traces.begin() is None
    assert "there are no traces: opentelemetry is not installed: pip install 'django-onramp[traces]'" in caplog.text


def test_a_trace_that_cannot_be_made_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    spans, broken = traces.begin(), Workflow(pk=7)
    assert spans
    no_attempt: Any = None
    no_key: Any = "no UUID"
    assert spans.trace_of(no_key, "test", "", "") is None
    assert "the key no UUID is not traced" in caplog.text
    spans.record(broken, no_attempt, Attempt.Outcome.COMPLETE)
    no_trace: Any = SimpleNamespace(sampled=True, id="no number", span=1, submission=1)
    spans.record_sending(no_trace, "crm", {}, error="", began=0.0, seconds=0.1)
    spans.end()
    assert "workflow 7: there is no trace" in caplog.text
    assert "no trace of what was sent to crm" in caplog.text
