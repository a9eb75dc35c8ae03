"""`manage.py relayoutbox`: sends the outbox's events to their destinations."""

from __future__ import annotations

import logging
from argparse import ArgumentParser
from threading import Event, Thread
from time import monotonic
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from workflows.engine.side_process_heartbeat import SideHeartbeat
from workflows.features.notices.mail import Mail
from workflows.features.outbox.destinations import SERVICES, Destination, destinations
from workflows.features.outbox.relay import Relay, Sender
from workflows.features.outbox.webhooks import Webhook
from workflows.features.traces import traces
from workflows.management.arguments import extra
from workflows.management.running import RunningCommand, prepare, stop_flag
from workflows.models import SideProcess

logger = logging.getLogger(__name__)

# Seconds between checks whether a relay has ended by itself, as with --drain.
LOOK_EVERY = 0.2


class Command(RunningCommand):
    drain = "Stop when nothing is due that can be sent now."
    help = (
        "Sends the events of the outbox to the destinations of OUTBOX_DESTINATIONS, until it is stopped.\n\n"
        '    {"crm": {"url": "https://crm.example.com/hooks", "secrets": ["whsec_..."], "topics": ["workflow.*"]},\n'
        '     "lake": {"kafka": "onramp-events", "topics": ["*"]},\n'
        '     "desk": {"email": "onramp@example.com", "topics": ["task.*", "reversal.*", "lead.*"]}}\n\n'
        "A webhook gets each event as a CloudEvent, signed as https://www.standardwebhooks.com says, with each of its\n"
        "secrets; it answers 2xx within 10 seconds. Kafka needs KAFKA_BROKERS, and KAFKA_OPTIONS for SASL and TLS.\n"
        "E-mail about what waits for people goes through EMAIL_URL (docs/notices.md).\n\n"
        "An event is sent once or more, always under the same id, and in the order of its workflow. What fails is\n"
        "tried again after 5 seconds, doubling to an hour; after three days it waits for a person (the\n"
        "console, For you). A destination that is down is left alone but for a trial; one that answers 410\n"
        "until a person has it tried again (the console, Services). Destinations do not delay each other.\n\n"
        "SIGTERM or Ctrl-C: it finishes what it is sending and gives back the rest. To go faster, or to have a second\n"
        "one ready, start more of these: no event is sent by two of them at a time."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        only = "Send to this one only; may be given several times (default: all of OUTBOX_DESTINATIONS)."
        parser.add_argument("--destination", action="append", dest="names", metavar="NAME", help=only)
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        chosen = _chosen(options["names"])
        prepare()
        signalled, stopping = stop_flag(), Event()
        heartbeat = SideHeartbeat(SideProcess.Kind.RELAY, [each.name for each in chosen])
        spans = traces.begin()
        relays = [Relay(each, _sender(each), stopping, heartbeat.message, spans=spans) for each in chosen]
        threads = [
            Thread(target=each.run, kwargs={"drain": options["drain"]}, name=each.destination.service)
            for each in relays
        ]
        for thread in threads:
            thread.start()
        logger.info("sending to %s", ", ".join(each.name for each in chosen))
        longest = options["max_runtime"]
        until = monotonic() + longest if longest is not None else float("inf")
        while (living := [each for each in threads if each.is_alive()]) and monotonic() < until:
            heartbeat.beat([each.name.removeprefix(SERVICES) for each in living])
            if signalled.wait(LOOK_EVERY):
                break
        stopping.set()
        for thread in threads:
            thread.join()
        heartbeat.stop()
        if spans:
            spans.end()
        logger.info("stopped")


def _chosen(names: list[str] | None) -> list[Destination]:
    try:
        known = destinations()
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from None
    if not known:
        raise CommandError("OUTBOX_DESTINATIONS is empty: nobody is to be told anything.")
    if unknown := sorted({*(names or ())} - known.keys()):
        raise CommandError(f"OUTBOX_DESTINATIONS has no {', '.join(unknown)}; it has {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(names or known)]


def _sender(destination: Destination) -> Sender:
    if destination.email:
        return Mail(destination)
    if not destination.kafka:
        return Webhook(destination)
    kafka = extra("workflows.features.outbox.kafka")
    try:
        return kafka.KafkaTopic(destination)  # type: ignore[no-any-return]
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from None
