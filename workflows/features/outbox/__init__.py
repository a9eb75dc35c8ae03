"""OUTBOX: events for others, which commit together with what they tell of, and are sent afterwards (docs/outbox.md).

| | where |
|---|---|
| `publish`, for authors of steps | `workflows.outbox`, and `events.py` |
| which destinations there are | `destinations.py` |
| what is sent, to a webhook or to Kafka | `webhooks.py`, `kafka.py` |
| `manage.py relayoutbox`: what is due is taken, sent and marked | `relay.py` |
| what is old is given up, or deleted | `chores.py` |
"""
