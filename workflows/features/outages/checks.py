"""Which calls may be repeated in an outage after the service has forgotten their key."""

from __future__ import annotations

from typing import Any

from django.core.checks import Warning

from workflows.checks import Messages, readable_definitions
from workflows.engine.backoff import merge_policies
from workflows.engine.retry_budget import OUTAGE_ATTEMPTS


def check_keys(**kwargs: Any) -> Messages:
    """The key of a call that nothing looks up is honoured for as long as the call is repeated in an outage."""
    for definition in readable_definitions().values():
        for step in definition.steps:
            if not step.once or step.lookup or step.key_ttl is None:
                continue
            policy = merge_policies(step.retry, definition.retry)
            longest = sum(
                min(policy.base_delay * 2.0 ** min(failures, 63), policy.max_delay) * (1 + policy.jitter_factor)
                for failures in range(max(policy.max_attempts, OUTAGE_ATTEMPTS) - 1)
            )
            if step.key_ttl.total_seconds() < longest:
                yield Warning(
                    f"The step {step.name!r} of {definition.name!r} is retried for up to {longest:.0f} s in an outage, "
                    "longer than its key is honoured.",
                    hint="Give it a lookup, or shorter delays; else a person is asked in the end.",
                    obj=definition,
                    id="workflows.W002",
                )
