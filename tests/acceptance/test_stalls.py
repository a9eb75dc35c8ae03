"""A database that stalls: what waits for it is not killed, nor charged to the step."""

from __future__ import annotations

from pathlib import Path
from time import sleep

import pytest

from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts, done, submit
from tests.processes import until
from tests.servers import Proxy, database_url
from workflows.engine.supervisor import KILL_OVERDUE_AFTER
from workflows.models import Attempt

pytestmark = pytest.mark.django_db(transaction=True)


def test_while_the_database_is_silent_no_worker_is_killed_as_overdue(runworker: Start, effects: Path) -> None:
    workflow = submit("stuck", effects, {"harm": "sleep"})
    with Proxy() as proxy:
        worker = runworker("STUCK", DATABASE_URL=database_url(port=proxy.port))
        until(lambda: done(effects, "begin") == [workflow.pk], what=lambda: worker.output)
        proxy.fall_silent()
        (child,) = worker.children()
        sleep(KILL_OVERDUE_AFTER + 5)
        assert worker.children() == [child], worker.output
        assert attempts(workflow) == [""]
        proxy.connect()
        until(lambda: attempts(workflow)[0] == "interrupted", what=lambda: worker.output, seconds=40)
        until(lambda: child not in worker.children(), what=lambda: worker.output)
        assert Attempt.objects.get(number=1).died_how == "overdue"
