"""PLACES: at most so many at a time, enforced by advisory locks; no row counts them."""

from __future__ import annotations


def taking(lock: str, key: str = "%(key)s::text", at_once: str = "%(at_once)s::int") -> str:
    """SQL that takes one of `at_once` places of `key` with PostgreSQL's function `lock`; no row if all are taken."""
    return f"""SELECT n FROM generate_series(1, {at_once}) n
                WHERE {lock}(hashtextextended({key}, n)) LIMIT 1"""  # noqa: S608 (ours)
