"""Debian's Prometheus with the example of deploy/, over a demo: what it makes of the rules and of the dashboards."""

from __future__ import annotations

import json
import math
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings

from tests.groups import make_groups
from tests.onboarding.test_demo import Demo, ports, start_demo  # noqa: F401 (fixtures)
from tests.processes import until

DEPLOY = settings.BASE_DIR / "deploy"
TOKEN = "prometheus"

Ask = Callable[..., Any]


@pytest.fixture
def ask(ports: dict[str, int], tmp_path: Path) -> Iterator[Ask]:  # noqa: F811
    """Asks a Prometheus that looks at the demo each second."""
    folder = shutil.copytree(DEPLOY / "prometheus", tmp_path / "prometheus")
    (folder / "token").write_text(TOKEN)
    example = (folder / "prometheus.yml").read_text()
    for theirs, ours in {
        "_interval: 15s": "_interval: 1s",
        "scheme: https": "scheme: http",
        "/etc/prometheus/onramp-token": "token",
        "targets: [onramp.example.com]": f"targets: ['127.0.0.1:{ports['console']}']",
        "intake-1.example.com:8000, intake-2.example.com:8000": f"'127.0.0.1:{ports['intake']}'",
    }.items():
        assert theirs in example
        example = example.replace(theirs, ours)
    (folder / "prometheus.yml").write_text(example)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb"]
    process = subprocess.Popen(["prometheus", *flags, f"--web.listen-address={address}", "--log.level=error"])
    with httpx.Client(base_url=f"http://{address}/api/v1/", transport=httpx.HTTPTransport(retries=5)) as http:
        yield lambda path, **about: http.get(path, params=about).raise_for_status().json()["data"]
    process.terminate()
    process.wait(30)


def panels() -> dict[str, str]:
    """The query of each panel; one with several has a line for each."""
    boards = [json.loads(file.read_text()) for file in (DEPLOY / "grafana" / "dashboards").glob("*.json")]
    return {
        f"{board['title']}, {panel['title']}, {target['refId']}": target["expr"]
        for board in boards
        for panel in board["panels"]
        for target in panel["targets"]
    }


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus (apt-get install prometheus)")
def test_each_panel_shows_something_and_each_rule_asks_for_what_there_is(
    ask: Ask,
    start_demo: Callable[[int], Demo],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_data() -> list[str]:
        return [name for name, expr in panels().items() if not has_data(expr)]

    def has_data(expr: str) -> bool:
        query = re.sub(r"\$__\w+", "5m", expr)
        return any(not math.isnan(float(each["value"][1])) for each in ask("query", query=query)["result"])

    make_groups()
    monkeypatch.setenv("METRICS_TOKEN", TOKEN)
    start_demo(60).until_it_prints("Ctrl-C stops everything.")
    until(lambda: not without_data(), seconds=60, what=without_data)

    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["health"] for rule in rules if rule["health"] != "ok"} == {}
    asked = " ".join([*panels().values(), *(rule["query"] for rule in rules)])
    names = set(re.findall(r"\b(?:onramp|workflow)_(?!type\b)\w+(?=[\[{ )])", f"{asked} "))
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    served = {
        f"{name}{suffix}"
        for name, (about, *_) in ask("metadata").items()
        for suffix in suffixes.get(about["type"], [""])
    }
    assert names
    assert names - served == set()
