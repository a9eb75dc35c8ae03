"""`manage.py consumesqs`: turns messages of an SQS queue into submissions."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from workflows.management.arguments import extra, given
from workflows.management.database import refuse_unknown_clients
from workflows.management.running import RunningCommand, prepare, reported, stop_flag
from workflows.signals import notify


class Command(RunningCommand):
    drain = "Stop when the queue is empty."
    help = (
        "Turns messages of an SQS queue into submissions, until it is stopped.\n\n"
        "A message has the attribute `Idempotency-Key`, a UUID, and the body that POST /v1/submissions takes. What is\n"
        "refused goes to the queue of dead letters, with the reason in an attribute; the others go on.\n\n"
        "A message is deleted after it is stored: whenever it is killed, nothing is lost and nothing happens twice.\n"
        "SIGTERM or Ctrl-C: it stores what it has in hand, or gives it back. To go faster start more of these.\n\n"
        "Region and credentials are boto3's own: AWS_REGION, AWS_PROFILE, a role, ..."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        add("--queue", metavar="URL", help="The queue (default: SQS_QUEUE_URL).")
        add("--client", metavar="NAME", help="The API client that writes to it (default: SQS_CLIENT).")
        add("--dead-letters", metavar="URL", help="The queue for what is refused (default: SQS_DEAD_LETTERS_URL).")
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        sqs = extra("workflows.features.queues.sqs")
        consumer_options = sqs.Options(
            queue=given(options["queue"], "SQS_QUEUE_URL", "--queue URL"),
            client=given(options["client"], "SQS_CLIENT", "--client NAME"),
            dead_letters=given(options["dead_letters"], "SQS_DEAD_LETTERS_URL", "--dead-letters URL"),
            visibility=settings.SQS_VISIBILITY_SECONDS,
            drain=options["drain"],
            max_runtime=options["max_runtime"],
        )
        if consumer_options.queue == consumer_options.dead_letters:
            raise CommandError("The queue of dead letters is the queue itself: what is refused would come for ever.")
        if consumer_options.dead_letters.endswith(".fifo"):
            raise CommandError("The queue of dead letters may not be a FIFO queue.")
        prepare()
        refuse_unknown_clients([consumer_options.client])
        notify.begin()
        with reported("consumesqs", sqs.SqsFailed):
            sqs.Consumer(consumer_options, stop_flag()).run()
