"""FEATURES: a package for each thing that the engine can do without. Its `hooks.py` takes part in a claim."""
