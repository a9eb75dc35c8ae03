"""OUTAGES: an outage of a service that workflows call costs time, but fails no workflow.

- `calls`: where a client of a service reports the result of each of its calls.
- `circuits`: whether a service is called at all; the workers find that out together.
- `parking`: the workflows that wait for a service, and their release when it is back.
"""
