"""The rules and the example of deploy/prometheus, by Prometheus' own tool."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from prometheus_client import generate_latest

from tests.workflows import rows
from tests.workflows.features.brake.causes import open_cause
from tests.workflows.features.outages.services import open_circuit

FOLDER = settings.BASE_DIR / "deploy" / "prometheus"
RULES = FOLDER / "onramp.rules.yml"
TESTS = Path(__file__).with_name("onramp.rules.test.yml")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (apt-get install prometheus)"
)


def promtool(*arguments: object, told: bytes = b"") -> None:
    done = subprocess.run(["promtool", *map(str, arguments)], input=told, capture_output=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@needs_promtool
def test_prometheus_accepts_the_rules_and_the_example() -> None:
    promtool("check", "rules", RULES)
    promtool("check", "config", "--syntax-only", FOLDER / "prometheus.yml")


@pytest.mark.slow
@needs_promtool
def test_each_alert_fires_when_it_should_and_not_when_it_should_not() -> None:
    promtool("test", "rules", TESTS)


def test_each_alert_is_expected_to_fire_and_not_to() -> None:
    text = " ".join(TESTS.read_text().split())
    alerts = dict(re.findall(r"expr: &(\w+) '.*?alertname=\"(\w+)\"", text))
    checks = re.findall(r"expr: [&*](\w+)(?: '.*?')?,? eval_time: \d+m,? exp_samples: (\[\])?", text)
    expected = {(alerts[name], not none) for name, none in checks}
    declared = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert expected == {(alert, fires) for alert in declared for fires in (True, False)}


def test_each_alert_leads_to_its_section_of_the_runbook() -> None:
    sections = re.findall(r"(?m)^### (Onramp\w+)$", (settings.BASE_DIR / "docs" / "operations.md").read_text())
    rules = RULES.read_text()
    assert set(sections) == set(re.findall(r"- alert: (\w+)", rules))
    of = re.findall(r"(?s)- alert: (\w+)\n.*?runbook_url: (\S+)", rules)
    assert of == [(alert, f"docs/operations.md#{alert.lower()}") for alert in re.findall(r"- alert: (\w+)", rules)]


@pytest.mark.django_db
def test_every_alert_that_docs_name_can_fire(client: Client, settings: Any) -> None:
    settings.DEBUG = True
    docs = [settings.BASE_DIR / "README.md", *(settings.BASE_DIR / "docs").rglob("*.md")]
    named = set(re.findall(r"\bOnramp[A-Z]\w+", " ".join(page.read_text() for page in docs)))
    rules = RULES.read_text()
    assert named == set(re.findall(r"- alert: (\w+)", rules))
    exposed = client.get("/metrics").content + generate_latest()  # the intake's are in the registry of each process
    told = set(re.findall(r"(?m)^# TYPE (\S+)", exposed.decode()))
    asked = set(re.findall(r"(?<![\w:])((?:onramp|workflow)_\w+?)(?:_bucket)?(?![\w:])", rules)) - {"workflow_type"}
    assert asked <= told, asked - told


@needs_promtool
@pytest.mark.django_db
def test_prometheus_has_nothing_to_say_against_the_names_and_the_help_of_metrics(client: Client, settings: Any) -> None:
    settings.DEBUG = True
    open_circuit("programs")
    open_cause()
    for make in (rows.workflow, rows.failed, rows.waiting, rows.given_up):
        make()
    promtool("check", "metrics", told=client.get("/metrics").content)
