"""OUTBOX: events for others. They commit together with the change they announce, and are sent later (docs/outbox.md).

| | where |
|---|---|
| `publish`, for authors of steps | `workflows.outbox`, and `events.py` |
| the destinations | `destinations.py` |
| the request to a webhook, the message to Kafka | `webhooks.py`, `kafka.py` |
| `manage.py relayoutbox`: takes due events, sends and marks them | `relay.py` |
| giving up and deleting old events | `chores.py` |
"""
