"""A PostgreSQL of the project's own, for DEBUG: nothing to install, nothing to configure.

`server` starts and stops it, `base` is the database backend whose first connection starts or joins it,
and `python -m config.embedded --help` is for people.
"""
