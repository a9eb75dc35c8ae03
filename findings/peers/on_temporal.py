"""Temporal: a workflow of one activity. Without a timeout an activity is refused; here it is 20 s."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from job import job
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker


@activity.defn
def step(kind: str) -> None:
    job("temporal", kind)


@workflow.defn(name="run", sandboxed=False)
class Run:
    @workflow.run
    async def run(self, kind: str) -> None:
        await workflow.execute_activity(step, kind, start_to_close_timeout=timedelta(seconds=20))


async def main() -> None:
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"])
    threads = ThreadPoolExecutor(100)
    await Worker(client, task_queue="jobs", workflows=[Run], activities=[step], activity_executor=threads).run()


asyncio.run(main())
