"""Tasks that cannot be declared, as on Django 6.0."""


def task(*, priority: int = 0) -> None: ...


task(retries=2)  # type: ignore[call-arg]
