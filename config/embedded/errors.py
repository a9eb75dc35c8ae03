from django.db.utils import OperationalError

# To be run where the project is.
INSTALL = "pip install -c constraints.txt '.[debug]'"
USE_ANOTHER_SERVER = "Or set DATABASE_URL=postgres://user:password@host/name to use a server of your own."


class EmbeddedServerError(OperationalError):
    """The embedded server cannot be used. The message says why, and what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"The embedded PostgreSQL: {problem}\n{USE_ANOTHER_SERVER}")
