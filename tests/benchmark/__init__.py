"""How fast the engine is, measured against the least that the same commits cost: python -m tests.benchmark --help."""

STEPS = 21  # of the workflow that is measured: as many as onboarding has
