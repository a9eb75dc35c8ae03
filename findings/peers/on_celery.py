"""Celery, with its default (PEER=celery), and acknowledging a task after it has run (PEER=celery_late)."""

import os

from celery import Celery
from job import job

PEER = os.environ["PEER"]

app = Celery(PEER, broker=f"redis+socket://{os.environ['PGHOST']}/{PEER}.sock")
app.conf.task_acks_late = PEER == "celery_late"


@app.task(name="job")
def run(kind):
    job(PEER, kind)
