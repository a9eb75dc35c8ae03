"""The intake's way into the table: one statement stores all submissions that have arrived meanwhile.

| | | |---|---| | submissions wait for their turn, and are answered | `batching.py` | | the submissions of one
statement, and their results | `batch.py` | | keys that another transaction has locked | `contended_keys.py` | | the
connection | `connection.py` |
"""
