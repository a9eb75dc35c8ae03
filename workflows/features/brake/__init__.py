"""BRAKE: a failure of many that nobody explains parks further workflows, until somebody mends its cause.

- `causes`: at which step, with which error, and the rules by which its brake is on; it has the circuit of a service.
- `brake`: what a worker knows of the causes, and how it votes.
- `release`: what is parked on a cause goes on, or is let fail.
"""
