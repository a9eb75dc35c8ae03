"""The downstream sandbox: the eight services that onboarding calls, with real HTTP, state and faults.

`server` speaks HTTP and applies `faults`; `calls` counts requests; `services` has the rules of each service; `store`
stores everything on disk (docs/sandbox.md).
"""
