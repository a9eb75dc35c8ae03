"""A tissue sample's image, taken through five jobs that run elsewhere and report back; a lost report is polled for."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from pydantic import BaseModel

from tests.scenarios import job_runner
from workflows.definition import Step, WorkflowDefinition
from workflows.effects import KnownEffect, key_for
from workflows.errors import StepError
from workflows.models import Workflow
from workflows.waits import wait_for_signal

# Far above what any job has taken, and how often to ask for what nobody has told.
JOB_TIMEOUT, LOOK_EVERY = timedelta(hours=6), timedelta(minutes=1)


class AnalysisContext(BaseModel):
    """Of each job its number, and what came of it."""

    upload_job: str | None = None
    upload: str | None = None
    tiles_job: str | None = None
    tiles: str | None = None
    prediction_job: str | None = None
    prediction: str | None = None
    annotations_job: str | None = None
    annotations: str | None = None
    report_job: str | None = None
    report: str | None = None


def start(job: str, source: str, *, workflow: Workflow, context: AnalysisContext) -> dict[str, str]:
    """Hand a job to the runner, with what the job `source` has made, or the image itself."""
    given = getattr(context, source) if source else workflow.payload["image"]
    key = key_for(workflow, f"start_{job}")
    return {f"{job}_job": job_runner.submit(job, given, reply_to=workflow.pk, idempotency_key=key)}


def find(job: str, *, workflow: Workflow, context: AnalysisContext, effect: KnownEffect) -> dict[str, str] | None:
    number = job_runner.find(idempotency_key=effect.idempotency_key)
    return {f"{job}_job": number} if number else None


def await_end(job: str, *, workflow: Workflow, context: AnalysisContext) -> dict[str, str]:
    """Wait for the runner's report; what it tells when it is asked is as good, should that be lost."""
    number = getattr(context, f"{job}_job")
    told = wait_for_signal(
        workflow,
        job,
        f"{job}.ended",
        timeout=JOB_TIMEOUT,
        look=lambda: job_runner.look(number),
        look_every=LOOK_EVERY,
        waiting_for=f"the job {number}",
    )
    ended = job_runner.Ended(**told.payload)
    if ended.error:
        raise StepError(f"The job {job} has failed.", code=ended.error)
    return {job: ended.result}


def steps_of(job: str, source: str = "") -> list[Step]:
    return [
        Step(
            partial(start, job, source),
            name=f"start_{job}",
            once=True,
            lookup=partial(find, job),
            returns=(f"{job}_job",),
        ),
        Step(partial(await_end, job), name=f"await_{job}"),
    ]


TISSUE_ANALYSIS = WorkflowDefinition(
    name="tissue_analysis",
    steps=[
        *steps_of("upload"),
        *steps_of("tiles", "upload"),
        *steps_of("prediction", "tiles"),
        *steps_of("annotations", "prediction"),
        *steps_of("report", "annotations"),
    ],
    context_class=AnalysisContext,
)
