"""`manage.py consumekafka`: turns messages of Kafka topics into signals or submissions."""

from __future__ import annotations

from argparse import ArgumentParser
from types import ModuleType
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from workflows.kafka_options import kafka_options
from workflows.management.arguments import extra, given
from workflows.management.database import refuse_unknown_clients
from workflows.management.running import RunningCommand, prepare, reported, stop_flag
from workflows.signals import notify


class Command(RunningCommand):
    drain = "Stop at the end of every assigned partition."
    help = (
        "Turns messages of Kafka topics into signals, or submissions, until it is stopped.\n\n"
        "The value of a message is a JSON object in UTF-8, up to 256 KiB: what has happened, for which workflow.\n\n"
        '    {"name": "account.created", "linking_id": "L-1", "payload": {"account": "A-7"}}\n'
        '    {"name": "card.verified", "workflow": "<idempotency key of the submission>", "payload": {}}\n\n'
        "A header `id` (or `ce_id`) makes a repeated message one signal, anywhere in the topic; without it a message\n"
        "counts once for its offset. A message that cannot become a signal is kept as undelivered, with the reason,\n"
        "and shown in the console; the others go on. A message without a value is skipped.\n\n"
        "A message of a topic of submissions has the header `idempotency-key`, a UUID, and the body that\n"
        "POST /v1/submissions takes. What is refused goes to the topic TOPIC.dead, with the reason in a header.\n\n"
        "The offset is committed after the signal: whenever it is killed, nothing is lost and nothing happens twice.\n"
        "SIGTERM or Ctrl-C: it stores the message in hand, commits its offset and leaves the group. To go faster\n"
        "start more of these, here or on other hosts: they share the partitions.\n\n"
        "Settings for SASL and TLS are librdkafka's, in the environment, as JSON:\n\n"
        '    KAFKA_OPTIONS={"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "onramp", ...}'
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add = parser.add_argument
        topic = "A topic to read; may be given several times (default: KAFKA_TOPICS, comma-separated)."
        add("--topic", action="append", dest="topics", metavar="NAME", help=topic)
        submissions = "A topic of submissions, and the API client that sends them (default: KAFKA_SUBMISSIONS)."
        add("--submissions", action="append", metavar="TOPIC=CLIENT", help=submissions)
        add("--brokers", metavar="HOST:PORT,...", help="Where Kafka is (default: KAFKA_BROKERS).")
        group = "The consumer group that keeps our place (default: KAFKA_GROUP, or onramp)."
        add("--group", metavar="NAME", help=group)
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        kafka = extra("workflows.features.queues.kafka")
        topics, submissions = _topics(options, kafka)
        relay_options = kafka.Options(
            brokers=given(options["brokers"], "KAFKA_BROKERS", "--brokers host:9092"),
            topics=topics,
            submissions=submissions,
            group=given(options["group"], "KAFKA_GROUP", "--group onramp"),
            properties=_properties(kafka),
            drain=options["drain"],
            max_runtime=options["max_runtime"],
        )
        prepare()
        refuse_unknown_clients(submissions.values())
        notify.begin()
        with reported("consumekafka", kafka.KafkaFailed):
            kafka.Relay(relay_options, stop_flag()).run()


def _topics(options: dict[str, Any], kafka: ModuleType) -> tuple[list[str], dict[str, str]]:
    """The topics of signals, and those of submissions with their clients. Raises CommandError."""
    named = options["topics"] or options["submissions"]
    topics: list[str] = (options["topics"] or []) if named else settings.KAFKA_TOPICS
    pairs = (options["submissions"] or []) if named else settings.KAFKA_SUBMISSIONS
    submissions = {topic: client for topic, _, client in (pair.partition("=") for pair in pairs)}
    if not topics and not submissions:
        raise CommandError("KAFKA_TOPICS is not set. Set it, or give --topic NAME.")
    if both := {*topics} & submissions.keys():
        raise CommandError(f"{', '.join(sorted(both))} cannot have signals and submissions.")
    for topic in (*topics, *submissions):
        if not kafka.TOPIC.fullmatch(topic):
            raise CommandError(
                f"{topic!r} is not a topic's name: letters, digits and . _ - in it, at most 144 of them."
            )
    if not all(submissions.values()):
        raise CommandError("A topic of submissions is given with the API client that sends them: TOPIC=CLIENT.")
    return topics, submissions


def _properties(kafka: ModuleType) -> dict[str, Any]:
    try:
        return kafka_options(*kafka.FIXED_PROPERTIES)
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from None
