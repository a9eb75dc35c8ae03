"""What the tests of the API expect of an answer."""

import json
from typing import Any


def assert_problem(response: Any, status: int, code: str) -> None:
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = json.loads(response.content)
    assert (response.status_code, problem["status"], problem["code"]) == (status, status, code)
    assert problem.keys() == {"type", "title", "status", "code", "detail"}
    assert response.headers["Cache-Control"] == "no-store"
