"""DBOS. Each process has a name of its own, as its documentation asks for."""

import os
import signal
import sys

from dbos import DBOS, DBOSClient
from job import job

URL = f"postgresql://postgres@/dbos?host={os.environ['PGHOST']}"


@DBOS.step()
def step(kind):
    job("dbos", kind)


@DBOS.workflow(name="run")
def run(kind):
    step(kind)


if sys.argv[1] == "worker":
    DBOS(config={"name": "peer", "executor_id": os.environ["WORKER"], "system_database_url": URL})
    DBOS.launch()
    DBOS.register_queue("jobs")
    signal.pause()
else:
    client = DBOSClient(system_database_url=URL)
    client.enqueue({"queue_name": "jobs", "workflow_name": "run", "workflow_id": sys.argv[1]}, sys.argv[1])
