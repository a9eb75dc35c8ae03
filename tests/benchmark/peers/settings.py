"""Django's settings in the peers' processes. Nothing is between a request and the peer: no middleware."""

import os

SECRET_KEY = "only-for-the-benchmark"
ALLOWED_HOSTS = ["localhost"]
USE_TZ = True
MIDDLEWARE: list[str] = []
ROOT_URLCONF = "tests.benchmark.peers.view"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "CONN_MAX_AGE": None,  # connections stay open, as ours do
    }
}

INSTALLED_APPS = os.environ["PEER_APPS"].split()
PROCRASTINATE_IMPORT_PATHS = ["tests.benchmark.peers.procrastinate"]
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
