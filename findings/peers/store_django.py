import sys

import django

django.setup()

from on_django import run  # noqa: E402 (Django is set up first)

run.enqueue(sys.argv[1])
