"""The downstream sandbox: the eight services that onboarding calls, over real HTTP, with real state and real faults.

`server` speaks HTTP and applies `faults`; `calls` counts what comes; `services` are the rules of each service; `store`
keeps it all on disk (docs/sandbox.md).
"""
