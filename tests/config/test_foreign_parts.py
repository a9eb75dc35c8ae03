"""The inner parts of libraries that we rely on, though no library promises them. An upgrade may take one away: then the
module named here has to change.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace

from gunicorn.asgi.parser import CallbackRequest
from gunicorn.asgi.protocol import ASGIProtocol, BodyReceiver
from gunicorn.workers.gasgi import ASGIWorker


def missing(part: object, *names: str) -> list[str]:
    owner = part if isinstance(part, type) else type(part)
    return [f"{owner.__name__}.{name}" for name in names if not hasattr(part, name)]


def test_gunicorn_has_the_parts_that_config_server_uses() -> None:
    worker = SimpleNamespace(cfg=SimpleNamespace(), log=None, asgi=None)
    protocol = ASGIProtocol(worker)
    receiver = BodyReceiver(CallbackRequest(), protocol)
    gone = missing(protocol, "worker", "transport", "log", "_closed", "_body_receiver")
    gone += missing(ASGIProtocol, "_arm_keepalive_timer", "_keepalive_timeout", "_close_transport", "_will_close")
    gone += missing(ASGIProtocol, "_send_error_response", "data_received", "pause_writing", "resume_writing")
    gone += missing(receiver, "_complete", "signal_disconnect")
    gone += missing(CallbackRequest(), "chunked", "content_length", "must_close")  # of gunicorn.conf.py
    gone += missing(ASGIWorker, "_shutdown")
    assert not gone, f"config/server.py needs what gunicorn has no longer: {gone}"
    made = "gunicorn.workers.gasgi makes its connections of something else than ASGIProtocol"
    assert "ASGIProtocol(self)" in inspect.getsource(ASGIWorker._serve), made
