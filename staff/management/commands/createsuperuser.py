"""Django's command, but it cannot skip the rules for passwords: neither by its question nor by the environment."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.contrib.auth.management.commands import createsuperuser
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError


def ask(prompt: str) -> str:
    """`input`, but "no" to Django's offer to accept a weak password."""
    return "n" if prompt.startswith("Bypass password validation") else input(prompt)


createsuperuser.input = ask  # type: ignore[attr-defined]  # as the command finds it, before the builtin


class Command(createsuperuser.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        password = os.environ.get("DJANGO_SUPERUSER_PASSWORD")
        if not options["interactive"] and password is not None:
            name = options["username"] or os.environ.get("DJANGO_SUPERUSER_USERNAME", "")
            email = options["email"] or os.environ.get("DJANGO_SUPERUSER_EMAIL", "")
            try:
                validate_password(password, User(username=name, email=email))
            except ValidationError as refusal:
                why = f"DJANGO_SUPERUSER_PASSWORD: {' '.join(refusal.messages)}"
                if not settings.DEBUG:
                    raise CommandError(why) from None
                self.stderr.write(self.style.WARNING(f"{why} It is taken with DEBUG only, to try the project out."))
        super().handle(*args, **options)
