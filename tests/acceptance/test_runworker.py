"""`manage.py runworker`, as an operator starts and stops it: real processes, real signals."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection

from tests import engine
from tests.acceptance.conftest import Start
from tests.acceptance.outside import attempts, begun, done, now, open_gate, submit, who_runs
from tests.processes import PATIENCE, children_of, environment, is_alive, until
from workflows.models import Attempt, WorkerProcess, Workflow

pytestmark = pytest.mark.django_db(transaction=True)


def test_two_processes_run_each_of_500_workflows_exactly_once(runworker: Start, effects: Path) -> None:
    Workflow.objects.bulk_create(
        Workflow(workflow_type="counted", idempotency_key=uuid.uuid4(), payload={"log": str(effects)})
        for _ in range(500)
    )
    pks = sorted(Workflow.objects.values_list("pk", flat=True))
    worker = runworker("COUNTED", arguments=("--processes", "2", "--drain"))
    assert worker.wait(120) == 0, worker.output
    assert sorted(done(effects, "note")) == pks, "one effect of each"
    assert sorted(Attempt.objects.values_list("workflow_id", "number", "outcome")) == [
        (pk, 1, "complete") for pk in pks
    ]
    assert set(Workflow.objects.values_list("status", flat=True)) == {"COMPLETE"}
    shares = Counter(Attempt.objects.values_list("worker", flat=True))
    assert len(shares) == 2, "and both had their share"


def test_a_step_that_closes_the_standard_streams_harms_neither_the_log_nor_the_next_workflow(
    runworker: Start, effects: Path
) -> None:
    harms = ("close the streams", "detach one", "remove one", "close the streams")
    workflows = [submit("harmful", effects, {"harm": harm}) for harm in harms]
    worker = runworker("HARMFUL", arguments=("--drain",))
    assert worker.wait() == 0, worker.output
    for workflow in workflows:
        assert attempts(workflow) == ["complete"], worker.output
        assert worker.output.count(f"printed by {workflow.pk}") == 2
        assert f"workflow {workflow.pk} (harmful, key" in worker.output


@pytest.mark.parametrize("by", ["SIGTERM", "Ctrl-C"])
def test_told_to_stop_it_finishes_the_workflow_in_hand_and_takes_no_other(
    runworker: Start, effects: Path, by: str
) -> None:
    """Ctrl-C reaches the whole process group at once, and impatient people press it twice."""
    in_hand = submit("held", effects)
    worker = runworker("HELD")
    until(begun(in_hand, effects), what=lambda: worker.output)
    next_one = submit("held", effects)
    if by == "SIGTERM":
        worker.signal(signal.SIGTERM)
    else:
        worker.interrupt()
        worker.interrupt()
    time.sleep(0.5)
    assert worker.process.poll() is None, "it waits for the workflow in hand"
    open_gate(effects)
    assert worker.wait(10) == 0, worker.output
    assert now(in_hand).status == "COMPLETE"
    assert (now(next_one).status, attempts(next_one)) == ("PENDING", [])
    assert "Traceback" not in worker.output


def test_after_its_grace_it_gives_back_at_the_next_step_and_another_goes_on(runworker: Start, effects: Path) -> None:
    in_hand = submit("held", effects)
    worker = runworker("HELD", arguments=("--grace", "0.2"))
    until(begun(in_hand, effects), what=lambda: worker.output)
    worker.signal(signal.SIGTERM)
    time.sleep(4)  # the supervisor tells its child twice a second, and then its grace starts
    open_gate(effects)
    assert worker.wait(10) == 0, worker.output
    workflow = now(in_hand)
    assert (workflow.status, workflow.retry_count, engine.kinds(workflow)) == ("PENDING", 0, ["put_back"])
    assert workflow.invisible_until == in_hand.invisible_until, "due at once"
    assert done(effects, "end") == []

    assert runworker("HELD", arguments=("--drain",)).wait() == 0
    assert now(in_hand).status == "COMPLETE"
    assert done(effects, "end") == [in_hand.pk]


def test_a_child_that_ends_is_replaced_and_an_idle_pool_stops_within_moments(runworker: Start, effects: Path) -> None:
    worker = runworker("COUNTED", arguments=("--processes", "2"))
    until(lambda: len(backends(worker.children())) == 4, what=lambda: worker.output)
    killed, told = worker.children()
    os.kill(killed, signal.SIGKILL)
    os.kill(told, signal.SIGTERM)
    until(lambda: len({*worker.children()} - {killed, told}) == 2, what=lambda: worker.output)
    assert f"worker process {killed} ended by SIGKILL" in worker.output
    workflow = submit("counted", effects)
    until(lambda: now(workflow).status == "COMPLETE", what=lambda: worker.output)
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0, worker.output


def test_children_that_die_at_once_are_not_forked_in_a_hot_loop(runworker: Start, effects: Path) -> None:
    """Payloads that kill their workers, more than enough for two processes, due again as soon as they are dead."""
    for _ in range(50):
        submit("deadly", effects)
    worker = runworker("DEADLY", arguments=("--processes", "2"))
    until(lambda: len(done(effects, "begin")) >= 4, what=lambda: worker.output)
    time.sleep(3)
    # 0.2 s, 0.4 s, 0.8 s, ... between them: about ten. In a hot loop it would be hundreds.
    assert len(done(effects, "begin")) <= 16
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0


def test_it_stops_by_itself_after_its_runtime(runworker: Start) -> None:
    began = time.monotonic()
    assert runworker("COUNTED", arguments=("--max-runtime", "1")).wait() == 0
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "0"], "'0' is not a number of processes: give 1 or more"),
        (["--grace", "-1"], "'-1' is not a number of seconds: give 0 or more"),
        (["--max-runtime", "nan"], "'nan' is not a number of seconds"),
        (["--only", "fun"], "invalid choice: 'fun' (choose from 'compensation')"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
    ],
)
def test_a_bad_argument_is_a_clear_message(arguments: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=re.escape(message)):
        call_command("runworker", *arguments)


def test_a_definition_that_cannot_be_imported_is_a_clear_message(runworker: Start) -> None:
    worker = runworker("MISSPELT")
    assert worker.wait() == 1
    assert "WORKFLOWS names 'tests.acceptance.definitions.MISSPELT'" in worker.output
    assert "Traceback" not in worker.output


# --- Processes and connections ----------------------------------------------------------------------------------


def backends(workers: list[int]) -> list[str]:
    """What pg_stat_activity calls the connections of these worker processes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT application_name FROM pg_stat_activity"
            " WHERE application_name LIKE 'onramp %%' AND datname = current_database()"
        )
        names = [name for (name,) in cursor.fetchall()]
    return sorted(name for name in names if name.rpartition(":")[2] in map(str, workers))


def test_the_table_of_workers_tells_who_works_and_how_each_ended(runworker: Start, effects: Path) -> None:
    workflow = submit("held", effects)
    worker = runworker("HELD", arguments=("--processes", "2"), RELEASE="r7")
    until(begun(workflow, effects), what=lambda: worker.output)
    until(lambda: WorkerProcess.objects.count() == 2, what=lambda: worker.output)
    holder = who_runs(workflow)
    row = WorkerProcess.objects.get(pid=holder)
    assert (row.workflow_id, row.attempt, row.release, row.stopped_at) == (workflow.pk, 1, "r7", None)
    assert backends([holder]) == [f"onramp attempt_log {row.name}", f"onramp claim {row.name}"]
    os.kill(holder, signal.SIGKILL)
    until(lambda: WorkerProcess.objects.get(pid=holder).stopped_at, what=lambda: worker.output)
    assert WorkerProcess.objects.get(pid=holder).ended_how == "SIGKILL"
    open_gate(effects)
    until(lambda: now(workflow).status == "COMPLETE", what=lambda: worker.output)
    until(lambda: WorkerProcess.objects.filter(stopped_at=None).count() == 2, what=lambda: worker.output)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert not WorkerProcess.objects.filter(stopped_at=None).exists()
    assert WorkerProcess.objects.filter(ended_how="").count() == 2


def test_workers_of_one_host_name_and_process_id_have_names_of_their_own(runworker: Start) -> None:
    """As in two containers, where each worker is process 7."""
    for count in (1, 2):
        worker = runworker("HELD")
        until(lambda: WorkerProcess.objects.count() == count, what=lambda: worker.output)  # noqa: B023 (it is asked at once)
    names = WorkerProcess.objects.values_list("name", flat=True)
    assert len({name.rpartition(":")[0] for name in names}) == 2, "they differ by more than the process"


def run_a_supervisor(effects: Path, before: str, **environ: str) -> subprocess.Popen[bytes]:
    """A supervisor in a process of its own, with something done `before`: what forking makes dangerous."""
    program = f"""
import django; django.setup()
import os, signal, time
from django.db import connections
from workflows.engine.supervisor import Options, Supervisor
{before}
Supervisor(Options(), ()).run()
"""
    with effects.with_name("supervisor.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=settings.BASE_DIR,
            env={**environment("HELD"), "DJANGO_SETTINGS_MODULE": "config.settings", **environ},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def group_of(leader: int) -> list[int]:
    found = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=True)
    rows = [line.split() for line in found.stdout.splitlines()]
    return [int(pid) for pid, group, state in rows if int(group) == leader and not state.startswith("Z")]


@pytest.fixture
def end_group() -> Any:
    leaders: list[subprocess.Popen[bytes]] = []
    yield leaders.append
    for leader in leaders:
        if group_of(leader.pid):
            os.killpg(leader.pid, signal.SIGKILL)
        leader.wait()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_the_supervisor_holds_no_connection_over_a_fork(effects: Path, end_group: Any) -> None:
    """Whatever opened one before: a child that shared it would break it, and its socket would keep a lock alive."""
    workflow = submit("held", effects)
    opened = "for alias in connections: connections[alias].ensure_connection()"
    supervisor = run_a_supervisor(effects, opened)
    end_group(supervisor)
    until(begun(workflow, effects), what=effects.with_name("supervisor.log").read_text)
    (child,) = children_of(supervisor.pid)
    assert sockets(supervisor.pid) == []
    assert len(sockets(child)) == 2, "the claim and the attempt log"


def sockets(pid: int) -> list[str]:
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        links.append(os.readlink(descriptor))
    return [link for link in links if link.startswith("socket:")]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells children of their parent's death on Linux only")
def test_a_child_whose_parent_dies_right_after_the_fork_does_not_run_on(effects: Path, end_group: Any) -> None:
    die = """
fork = os.fork
def fork_and_die():
    if fork():
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.3)  # the parent is gone, and the child has not asked to be told
    return 0
os.fork = fork_and_die
"""
    supervisor = run_a_supervisor(effects, die)
    end_group(supervisor)
    assert supervisor.wait(PATIENCE) == -signal.SIGKILL
    until(lambda: not group_of(supervisor.pid), what=effects.with_name("supervisor.log").read_text)


def test_a_request_to_stop_right_after_the_fork_is_not_lost(effects: Path, end_group: Any) -> None:
    """The child has no handler of its own yet, and takes no note of the first one."""
    delay = """
fork = os.fork
def fork_slowly():
    pid = fork()
    if pid:
        os.kill(pid, signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        time.sleep(0.3)
    return pid
os.fork = fork_slowly
"""
    supervisor = run_a_supervisor(effects, delay)
    end_group(supervisor)
    assert supervisor.wait(PATIENCE) == 0
    assert group_of(supervisor.pid) == []


def test_a_child_that_cannot_be_started_ends_nobody_and_is_started_when_it_can_be(
    effects: Path, end_group: Any
) -> None:
    refuse = f"""
from workflows.engine import supervisor
supervisor.MAX_RESTART_DELAY = 0.1
fork = os.fork
def fork_when_there_is_room():
    if os.path.exists({str(effects.with_name("room"))!r}):
        return fork()
    raise BlockingIOError(11, "Resource temporarily unavailable")
os.fork = fork_when_there_is_room
"""
    supervisor = run_a_supervisor(effects, refuse)
    end_group(supervisor)
    log = effects.with_name("supervisor.log").read_text
    said = "no worker process can be started, it is tried again: Resource temporarily unavailable"
    until(lambda: log().count(said) >= 3, what=log)
    effects.with_name("room").touch()
    workflow = submit("held", effects)
    until(begun(workflow, effects), what=log)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells children of their parent's death on Linux only")
def test_children_of_a_killed_supervisor_finish_the_workflow_in_hand_and_stop(runworker: Start, effects: Path) -> None:
    in_hand = submit("held", effects)
    worker = runworker("HELD", arguments=("--processes", "2"))
    until(begun(in_hand, effects), what=lambda: worker.output)
    children = until(lambda: len(worker.children()) == 2 and worker.children())
    worker.signal(signal.SIGKILL)
    worker.wait()
    holder = who_runs(in_hand)
    until(lambda: [pid for pid in children if is_alive(pid)] == [holder], what=lambda: worker.output)
    next_one = submit("held", effects)
    open_gate(effects)
    until(lambda: not is_alive(holder), what=lambda: worker.output)
    assert now(in_hand).status == "COMPLETE"
    assert attempts(next_one) == []


def test_a_hook_that_hangs_after_the_commit_is_ended_with_its_worker(runworker: Start, effects: Path) -> None:
    """Its outcome stands, and the worker goes on: no step runs by then, and nothing else would end the hook."""
    workflow = submit("hanging_hook", effects)
    worker = runworker("HANGING_HOOK", "COUNTED")
    until(lambda: now(workflow).status == "COMPLETE", what=lambda: worker.output)
    neighbour = submit("counted", effects)
    until(lambda: now(neighbour).status == "COMPLETE", seconds=120, what=lambda: worker.output)
    assert f" is overdue in an on_commit hook, after end, of workflow {workflow.pk}" in worker.output
    assert attempts(workflow) == ["complete"]
    assert engine.kinds(workflow) == ["completed"]
    assert WorkerProcess.objects.filter(ended_how="overdue").count() == 1


def test_one_more_process_needs_little_memory_of_its_own(runworker: Start, effects: Path) -> None:
    """What was imported before the fork is shared, and stays so when the children collect their garbage."""
    for _ in range(20):
        submit("collected", effects)
    worker = runworker("COLLECTED", arguments=("--processes", "2"))
    until(lambda: Workflow.objects.filter(status="COMPLETE").count() == 20, what=lambda: worker.output)
    own = [psutil.Process(child).memory_full_info().uss for child in worker.children()]
    assert len(own) == 2
    assert max(own) < 25_000_000, "bytes"
