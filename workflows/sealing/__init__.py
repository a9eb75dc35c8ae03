"""SEALING: secrets, and what is not delivered yet, are stored encrypted, under keys outside the database (ADR 29).

`envelopes` seals and opens; `payloads` (secret fields) and `whole` (rows) say what, for all who store or read it, and
`rows` does it again under another key.
"""
