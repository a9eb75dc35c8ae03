"""TELLING: a workflow in words, for pages and commands: where it stands, its history, money, and what would happen."""
