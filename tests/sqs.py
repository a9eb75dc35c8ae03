"""A queue to talk to: moto's server, in a process of its own. It speaks SQS, and keeps its queues in memory."""

from __future__ import annotations

import re
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import boto3

from tests.processes import Runworker, until

# What boto3 wants to know.
ACCESS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_DEFAULT_REGION": "eu-central-1"}


# For each message that is sent, moto reads the clock some four times for each that is in the queue, slowly. While it
# deletes one it forgets what is sent meanwhile, because its threads share a list.
_SERVER = """
import time
from moto.server import main
from moto.sqs import models
models.unix_time_millis = lambda: time.time() * 1000
delete = models.Queue.delete_message
def delete_alone(queue, handle):
    with queue._messages_lock:
        delete(queue, handle)
models.Queue.delete_message = delete_alone
main(["-p", "0"])
"""


class Server:
    def __init__(self, log: Path) -> None:
        with log.open("w") as output:
            self.process = subprocess.Popen([sys.executable, "-c", _SERVER], stdout=output, stderr=subprocess.STDOUT)
        found = until(lambda: re.search(r"Running on (http://\S+?)\s", log.read_text()), what=log.read_text)
        self.url = found[1]
        self.environ = {**ACCESS, "AWS_ENDPOINT_URL": self.url}
        self.client = boto3.client(
            "sqs",
            endpoint_url=self.url,
            region_name="eu-central-1",
            aws_access_key_id="tests",
            aws_secret_access_key="tests",
        )

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()

    def queue(self) -> Queue:
        return Queue(self.client, self.client.create_queue(QueueName=f"q-{uuid.uuid4().hex[:8]}")["QueueUrl"])


class Queue:
    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self.url = url

    def send(self, *messages: tuple[str, str], **attributes: str) -> None:
        """Idempotency keys and bodies, ten at a time."""
        of_all = {name: text(value) for name, value in attributes.items()}
        for at in range(0, len(messages), 10):
            entries = [
                {"Id": str(n), "MessageBody": body, "MessageAttributes": of_all | _key(key)}
                for n, (key, body) in enumerate(messages[at : at + 10])
            ]
            answer = self._client.send_message_batch(QueueUrl=self.url, Entries=entries)
            assert not answer.get("Failed"), answer

    def left(self) -> tuple[int, int]:
        """How many may be received, and how many are in hand of somebody."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def take(self) -> list[dict[str, Any]]:
        """All messages that may be received; they are deleted."""
        taken = []
        while True:
            answer = self._client.receive_message(
                QueueUrl=self.url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], WaitTimeSeconds=0
            )
            if not (messages := answer.get("Messages")):
                return taken
            for each in messages:
                self._client.delete_message(QueueUrl=self.url, ReceiptHandle=each["ReceiptHandle"])
            taken += messages


def _key(key: str) -> dict[str, Any]:
    return {"Idempotency-Key": text(key)} if key else {}


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


class Consumesqs(Runworker):
    """One `manage.py consumesqs`."""

    command = "consumesqs"
