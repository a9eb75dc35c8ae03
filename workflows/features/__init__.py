"""FEATURES: what the engine can do without, a room for each. `hooks.py` is where one takes part in a claim."""
