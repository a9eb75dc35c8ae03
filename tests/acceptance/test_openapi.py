"""What the API says of itself is true: schemathesis sends what the document allows, and what not, to real servers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from tests.servers import database_url, gunicorn
from tests.workflows import rows
from workflows.ingress import api_keys, bounds

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("application", "paths"),
    [("config.wsgi", "."), ("config.intake", "submissions|openapi|healthz|readyz"), ("config.wsgi", "operator")],
)
def test_the_document_says_what_the_server_does(application: str, paths: str, tmp_path: Path) -> None:
    key = api_keys.create("shop", may=bounds.BEYOND)
    if paths == "operator":
        boss = User.objects.create_superuser("boss")
        rows.open_task(rows.failed(pk=1), pk=1)
        key = api_keys.create_for(boss, "agent", per_second=1e6)
    with gunicorn(application, tmp_path, url=database_url()) as server:
        run = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/v1/openapi.json"),
                *("--header", f"Authorization: Bearer {key}", "--include-path-regex", paths),
                *("--max-examples", "25", "--seed", "1", "--no-color", "--checks", "all"),
                # A key used before, or a character that PostgreSQL cannot keep, is refused: a schema cannot say so.
                *("--exclude-checks", "positive_data_acceptance"),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path,
        )
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2_000:]
    assert "Traceback" not in server.printed()
