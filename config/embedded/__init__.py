"""The project's own PostgreSQL, for DEBUG: nothing to install or configure.

`server` starts and stops it. `base` is the database backend whose first connection starts or joins it. `python -m
config.embedded --help` is for people.
"""
