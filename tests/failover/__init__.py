"""A failover of PostgreSQL by Patroni, under load: `make test-failover`."""
