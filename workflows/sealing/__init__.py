"""SEALING: the secret fields of a payload are stored encrypted, under keys that the database does not have (ADR 29)."""
