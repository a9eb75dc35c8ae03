"""What the intake keeps of its rate for others, while a client goes on sending over its API key's limit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.benchmark.clients import Round, send
from tests.benchmark.database import TABLES, manage
from tests.benchmark.findings import Finding, Report, in_turns, ratios
from tests.benchmark.processor import seconds_used
from tests.benchmark.setting import Setting
from tests.servers import Gunicorn

# Of the others, and the share of their rate that they keep at least.
CONNECTIONS, KEEPS = 64, 0.9
# Of the time of its processes, what the refusals take at most: the load of the machine changes it little.
TAKES = 0.1
ALONE, BESIDE, FLOOD = "others alone", "beside the flood", "the flood alone"


def report(setting: Setting) -> Report:
    """In turns: others; the same beside a client that sends again on each connection as soon as it is refused; and
    that client alone.
    """
    over = manage(setting.database.url, "createapikey", "flood", "--per-second", "0.01").split()[-1]
    sizes, _ = setting.sizes, setting.key
    with setting.serving("entered_with_secrets") as server:
        sending = partial(_send, setting, server, over)
        sending(16, sizes.flood)  # its one token, and what a process does first
        contestants = {
            ALONE: partial(sending, CONNECTIONS, 0),
            BESIDE: partial(sending, CONNECTIONS, sizes.flood),
            FLOOD: partial(sending, 0, sizes.flood),
        }
        rounds = in_turns(contestants, sizes.rounds, "beside a flood")
    alone, beside, flood = ([each[name] for each in rounds] for name in contestants)
    measure = f"intake, {sizes.flood} connections over a limit"
    found = [
        Finding(
            measure,
            f"of the rate of {CONNECTIONS} others alone",
            ratios([each.rate for each in beside], [each.rate for each in alone]),
            at_least=KEEPS,
        ),
        Finding(
            measure,
            "of the processes' time",
            # Each connection is refused for a second before the round, too.
            [each.processor / (each.seconds + 1) / sizes.processes for each in flood],
            at_most=TAKES,
        ),
        Finding(measure, "processor time of a refusal", _milliseconds(flood, [each.refused for each in flood]), "ms"),
        Finding(measure, "of a submission", _milliseconds(alone, [len(each.latencies) for each in alone]), "ms"),
    ]
    figures = {
        name: [(each[name].rate, each[name].refused, each[name].processor) for each in rounds] for name in rounds[0]
    }
    return Report(f"{sum(each.refused for each in beside):,} requests over a limit", found, figures)


def _send(setting: Setting, server: Gunicorn, over: str, connections: int, flood: int) -> Round:
    before = seconds_used(setting.database, server)
    seconds = setting.sizes.seconds
    sent = send(server.port, setting.key, seconds=seconds, connections=connections, flood=flood, over=over)
    sent.processor = seconds_used(setting.database, server) - before
    setting.database.begin_anew(TABLES)
    return sent


def _milliseconds(rounds: Sequence[Round], counts: Sequence[int]) -> list[float]:
    return [each.processor / max(count, 1) * 1000 for each, count in zip(rounds, counts, strict=True)]
