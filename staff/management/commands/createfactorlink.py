"""`manage.py createfactorlink USER`: the first administrator's second factor, or a replacement for a lost one."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError

from staff.enrolment import new_link


class Command(BaseCommand):
    help = "Print the path of a link by which a user enrols a second factor, once and within a day, on its last line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("user", help="the user name")
        parser.add_argument("--lost", action="store_true", help="also remove the factors that they have, and sign out")

    def handle(self, *args: Any, user: str, lost: bool, **options: Any) -> None:
        found = User.objects.filter(username=user, is_active=True).first()
        if found is None:
            raise CommandError(f"There is no active user {user}.")
        path = new_link(found, by=None, lost=lost)
        self.stderr.write(f"For {user}: they open it at the console's address, and sign in with their password.")
        self.stdout.write(path)
