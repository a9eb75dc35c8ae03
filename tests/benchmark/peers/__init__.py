"""Who else runs jobs from PostgreSQL, and how each is measured beside the engine.

A peer's own module here runs in the peers' virtual environment (`venv.py`), as do `__main__.py`, `settings.py`,
`view.py` and `server.py`; what is here, and `contest.py`, runs where the benchmark does.
"""

from __future__ import annotations

from typing import NamedTuple

PLAIN, RECORDED = "plain steps", "recorded steps"

_MIGRATE = "-m django migrate --verbosity 0"
_OURS = "-m tests.benchmark.peers"


class Peer(NamedTuple):
    """One of them. What Python is called with has spaces between its arguments. Statements say what its tables know.

    `done`: how many jobs have ended, and the seconds from the start of the first to the end of the last. `taken`: the
    milliseconds of each from its storing to its start. What it requires is what starts with its name in the group
    `bench`.
    """

    name: str  # of its module here
    steps: str  # of which kind it drains
    share: float  # of the jobs that the engine drains: slow ones get fewer
    prepare: tuple[str, ...]
    worker: str  # of one process
    tables: str
    done: str
    taken: str
    docs: str
    does: str
    apps: str = ""  # of Django's INSTALLED_APPS


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            *("procrastinate", PLAIN, 0.5),
            prepare=(_MIGRATE,),
            worker="-m django procrastinate worker --concurrency 4",
            tables="procrastinate_jobs, procrastinate_events",
            done="""SELECT count(*) FILTER (WHERE type = 'succeeded'),
                           extract(epoch FROM max(at) - min(at) FILTER (WHERE type = 'started'))
                      FROM procrastinate_events""",
            taken="""SELECT array_agg(extract(epoch FROM begun.at - stored.at)::float * 1000)
                       FROM procrastinate_events stored JOIN procrastinate_events begun USING (job_id)
                      WHERE stored.type = 'deferred' AND begun.type = 'started'""",
            docs="https://procrastinate.readthedocs.io/en/stable/howto/django/basic_usage.html",
            does="a statement each to take a job and to finish it, 4 jobs at a time in a process (the fastest of 1, 4 "
            "and 30); a row of history for each change; no transaction around the work; a dead worker's jobs stay as "
            "they were until a periodic task of one's own retries them",
            apps="procrastinate.contrib.django",
        ),
        Peer(
            *("django_tasks_db", PLAIN, 0.5),
            prepare=(_MIGRATE,),
            worker="-m django db_worker --no-startup-delay --verbosity 0",
            tables="django_tasks_database_dbtaskresult",
            done="""SELECT count(finished_at), extract(epoch FROM max(finished_at) - min(started_at))
                      FROM django_tasks_database_dbtaskresult""",
            taken="""SELECT array_agg(extract(epoch FROM started_at - enqueued_at)::float * 1000)
                       FROM django_tasks_database_dbtaskresult WHERE started_at IS NOT NULL""",
            docs="https://github.com/RealOrangeOne/django-tasks-db",
            does="two commits a task through Django's ORM; the result is kept; no transaction around the work; it "
            "polls once a second; a task that was under way when its worker died stays so",
            apps="django_tasks django_tasks_db",
        ),
        Peer(
            *("pgqueuer", PLAIN, 2.0),
            prepare=("-m pgqueuer install", "-m pgqueuer autovac"),
            worker="-m pgqueuer run tests.benchmark.peers.pgqueuer:manager --batch-size 25 --log-level WARNING",
            tables="pgqueuer, pgqueuer_log, pgqueuer_statistics",
            done="""SELECT count(*) FILTER (WHERE status = 'successful'),
                           extract(epoch FROM max(created) - min(created) FILTER (WHERE status = 'picked'))
                      FROM pgqueuer_log""",
            taken="""SELECT array_agg(extract(epoch FROM begun.created - stored.created)::float * 1000)
                       FROM pgqueuer_log stored JOIN pgqueuer_log begun USING (job_id)
                      WHERE stored.status = 'queued' AND begun.status = 'picked'""",
            docs="https://pgqueuer.readthedocs.io/en/latest/guides/performance-tuning/",
            does="takes jobs by the batch of 25 and finishes them by the batch; a job is deleted when it is done and "
            "its log kept; no transaction around the work; a dead worker's jobs are taken again after 30 s",
        ),
        Peer(
            *("dbos", RECORDED, 0.5),
            prepare=(f"{_OURS} dbos prepare",),
            worker=f"{_OURS} dbos work",
            tables="dbos.workflow_status, dbos.operation_outputs",
            done="""SELECT count(completed_at), (max(completed_at) - min(started_at_epoch_ms)) / 1000.0
                      FROM dbos.workflow_status""",
            taken="""SELECT array_agg((started_at_epoch_ms - created_at)::float) FROM dbos.workflow_status
                      WHERE started_at_epoch_ms IS NOT NULL""",
            docs="https://docs.dbos.dev/python/tutorials/queue-tutorial",
            does="a row for each step once it is done, none before: a call that was under way is made again; up to 20 "
            "workflows in a process at a time; it polls once a second; a dead process's workflows wait until one of "
            "its name starts",
        ),
        Peer(
            *("absurd", RECORDED, 0.5),
            prepare=(f"{_OURS} absurd prepare",),
            worker=f"{_OURS} absurd work",
            tables="absurd.t_benchmark, absurd.r_benchmark, absurd.c_benchmark",
            done="""SELECT count(completed_at), extract(epoch FROM max(completed_at) - min(started_at))
                      FROM absurd.r_benchmark""",
            taken="""SELECT array_agg(extract(epoch FROM first_started_at - enqueue_at)::float * 1000)
                       FROM absurd.t_benchmark WHERE first_started_at IS NOT NULL""",
            docs="https://github.com/earendil-works/absurd/tree/main/sdks/python",
            does="a row for each step once it is done, none before: a call that was under way is made again; it polls "
            "four times a second; a dead worker's task is taken again when its lease of 120 s is over",
        ),
    )
}
