"""The intake's way into the table: whatever has arrived meanwhile is stored by one statement.

| | |
|---|---|
| a submission waits its turn, and is answered | `batching.py` |
| those that go together, and what came of each | `batch.py` |
| a key that another transaction holds | `contended_keys.py` |
| the connection | `connection.py` |
"""
