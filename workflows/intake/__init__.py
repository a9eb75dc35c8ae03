"""The intake's way into the table: whatever has arrived meanwhile is stored by one statement.

| | |
|---|---|
| a submission waits its turn, and is answered | `groups.Groups.enter` |
| those that go together, and what came of each | `group.py` |
| a key that another transaction holds | `quarantine.py` |
| the connection | `link.py` |
"""
