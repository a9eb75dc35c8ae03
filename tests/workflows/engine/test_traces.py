import sys

import pytest

from workflows.engine import traces


def test_without_the_extra_there_are_none_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "workflows.engine.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert traces.begin() is None
    assert caplog.text == "", "nobody has asked for them"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert traces.begin() is None
    assert "there are no traces, for a package is missing" in caplog.text
