from tests.workflows.mistakes.shop import write

__all__ = ["write"]
