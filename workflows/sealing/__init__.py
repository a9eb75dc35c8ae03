"""SEALING: secrets, and content not delivered yet, are stored encrypted, under keys outside the database (ADR 29).

`envelopes` seals and opens values; `payloads` (secret fields) and `whole` (rows) decide which, for all code that stores
or reads them; `rows` seals again under another data key.
"""
