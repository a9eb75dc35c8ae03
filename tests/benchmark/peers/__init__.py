"""Who else runs jobs from PostgreSQL, and how each is measured beside the engine.

A peer's own module here runs in the peers' virtual environment (`venv.py`), as do `__main__.py`, `settings.py`,
`view.py` and `server.py`; what is here, and `contest.py`, runs where the benchmark does.
"""

from __future__ import annotations

from typing import NamedTuple

PLAIN, RECORDED = "plain steps", "recorded steps"

_DJANGO = ("-m", "django")
_OURS = ("-m", "tests.benchmark.peers")


class Peer(NamedTuple):
    """One of them. Arguments are those of Python; statements say what its tables know.

    `done`: how many jobs have ended, and the seconds from the start of the first to the end of the last. `taken`: the
    milliseconds of each from its storing to its start.
    """

    name: str  # of its module here
    requirements: tuple[str, ...]  # of the group `bench`
    steps: str  # of which kind it drains
    share: float  # of the jobs that the engine drains: slow ones get fewer
    prepare: tuple[tuple[str, ...], ...]
    worker: tuple[str, ...]  # of one process
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
            "procrastinate",
            ("procrastinate",),
            PLAIN,
            0.5,
            ((*_DJANGO, "migrate", "--verbosity", "0"),),
            (*_DJANGO, "procrastinate", "worker", "--concurrency", "4"),
            "procrastinate_jobs, procrastinate_events",
            """SELECT count(*) FILTER (WHERE type = 'succeeded'),
                      extract(epoch FROM max(at) - min(at) FILTER (WHERE type = 'started'))
                 FROM procrastinate_events""",
            """SELECT array_agg(extract(epoch FROM begun.at - stored.at)::float * 1000)
                 FROM procrastinate_events stored JOIN procrastinate_events begun USING (job_id)
                WHERE stored.type = 'deferred' AND begun.type = 'started'""",
            "https://procrastinate.readthedocs.io/en/stable/howto/django/basic_usage.html",
            "a statement each to take a job and to finish it, 4 jobs at a time in a process (the fastest of 1, 4 and "
            "30); a row of history for each change; no transaction around the work; a dead worker's jobs stay as they "
            "were until a periodic task of one's own retries them",
            apps="procrastinate.contrib.django",
        ),
        Peer(
            "django_tasks_db",
            ("django-tasks-db",),
            PLAIN,
            0.5,
            ((*_DJANGO, "migrate", "--verbosity", "0"),),
            (*_DJANGO, "db_worker", "--no-startup-delay", "--verbosity", "0"),
            "django_tasks_database_dbtaskresult",
            """SELECT count(finished_at), extract(epoch FROM max(finished_at) - min(started_at))
                 FROM django_tasks_database_dbtaskresult""",
            """SELECT array_agg(extract(epoch FROM started_at - enqueued_at)::float * 1000)
                 FROM django_tasks_database_dbtaskresult WHERE started_at IS NOT NULL""",
            "https://github.com/RealOrangeOne/django-tasks-db",
            "two commits a task through Django's ORM; the result is kept; no transaction around the work; it polls "
            "once a second; a task that was under way when its worker died stays so",
            apps="django_tasks django_tasks_db",
        ),
        Peer(
            "pgqueuer",
            ("pgqueuer",),
            PLAIN,
            2.0,
            (("-m", "pgqueuer", "install"), ("-m", "pgqueuer", "autovac")),
            (
                "-m",
                "pgqueuer",
                "run",
                "tests.benchmark.peers.pgqueuer:manager",
                "--batch-size",
                "25",
                "--log-level",
                "WARNING",
            ),
            "pgqueuer, pgqueuer_log, pgqueuer_statistics",
            """SELECT count(*) FILTER (WHERE status = 'successful'),
                      extract(epoch FROM max(created) - min(created) FILTER (WHERE status = 'picked'))
                 FROM pgqueuer_log""",
            """SELECT array_agg(extract(epoch FROM begun.created - stored.created)::float * 1000)
                 FROM pgqueuer_log stored JOIN pgqueuer_log begun USING (job_id)
                WHERE stored.status = 'queued' AND begun.status = 'picked'""",
            "https://pgqueuer.readthedocs.io/en/latest/guides/performance-tuning/",
            "takes jobs by the batch of 25 and finishes them by the batch; a job is deleted when it is done and its "
            "log kept; no transaction around the work; a dead worker's jobs are taken again after 30 s",
        ),
        Peer(
            "dbos",
            ("dbos",),
            RECORDED,
            0.5,
            ((*_OURS, "dbos", "prepare"),),
            (*_OURS, "dbos", "work"),
            "dbos.workflow_status, dbos.operation_outputs",
            """SELECT count(completed_at), (max(completed_at) - min(started_at_epoch_ms)) / 1000.0
                 FROM dbos.workflow_status""",
            """SELECT array_agg((started_at_epoch_ms - created_at)::float) FROM dbos.workflow_status
                WHERE started_at_epoch_ms IS NOT NULL""",
            "https://docs.dbos.dev/python/tutorials/queue-tutorial",
            "a row for each step once it is done, none before: a call that was under way is made again; up to 20 "
            "workflows in a process at a time; it polls once a second; a dead process's workflows wait until one of "
            "its name starts",
        ),
        Peer(
            "absurd",
            ("absurd-sdk", "absurdctl"),
            RECORDED,
            0.5,
            ((*_OURS, "absurd", "prepare"),),
            (*_OURS, "absurd", "work"),
            "absurd.t_benchmark, absurd.r_benchmark, absurd.c_benchmark",
            """SELECT count(completed_at), extract(epoch FROM max(completed_at) - min(started_at))
                 FROM absurd.r_benchmark""",
            """SELECT array_agg(extract(epoch FROM first_started_at - enqueue_at)::float * 1000)
                 FROM absurd.t_benchmark WHERE first_started_at IS NOT NULL""",
            "https://github.com/earendil-works/absurd/tree/main/sdks/python",
            "a row for each step once it is done, none before: a call that was under way is made again; it polls four "
            "times a second; a dead worker's task is taken again when its lease of 120 s is over",
        ),
    )
}
