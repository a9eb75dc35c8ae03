from tests.workflows.conftest import engine

__all__ = ["engine"]
