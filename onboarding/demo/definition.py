"""Onboarding as the demo runs it: it asks a person about a visit with an unknown outcome within seconds, not a day.

The real list repeats such a call for as long as the visits service honours its key, 24 hours. Here the key has expired
at once, so the next attempt cannot find out whether the visit was started.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from datetime import timedelta

from onboarding.workflow import ONBOARDING

# Seconds; the sandbox's calls are over within milliseconds.
SETTLE = 2.0

DEMO = copy(ONBOARDING)
DEMO.steps = tuple(
    replace(step, key_ttl=timedelta(0), settle=SETTLE) if step.name == "start_visit" else step
    for step in ONBOARDING.steps
)
