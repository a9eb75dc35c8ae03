"""Settings, from the environment only (django-environ); `.env` in the project's folder is read when it is there."""

from pathlib import Path
from typing import Any
from urllib.parse import unquote

import environ
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = BASE_DIR / "var"

env = environ.Env()
env.read_env(BASE_DIR / ".env")

# --- Mode ---------------------------------------------------------------------------------------

DEBUG = env.bool("DEBUG", default=False)

if DEBUG:
    SECRET_KEY = env.str("SECRET_KEY", default="insecure-and-only-for-debug-on-this-machine")
    ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
else:
    SECRET_KEY = env.str("SECRET_KEY", default="")
    if not SECRET_KEY:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set. Set it to a long random string, or set DEBUG=1 to try the project out."
        )
    ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])

# --- Database -----------------------------------------------------------------------------------

if env.str("DATABASE_URL", default=""):
    database: dict[str, Any] = env.db_url("DATABASE_URL")
    database["HOST"] = unquote(database["HOST"])  # a socket's folder: postgres://user@%2Fvar%2Frun%2Fpostgresql/name
    if database["ENGINE"] != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL must name a PostgreSQL server: postgres://user:password@host/name")
elif DEBUG:
    # A server of our own, started or joined by the first connection: see config/embedded.
    database = {"ENGINE": "config.embedded", "NAME": "onramp", "HOST": VAR_DIR / "postgres"}
else:
    raise ImproperlyConfigured(
        "DATABASE_URL is not set, and the embedded PostgreSQL is for DEBUG only. Set "
        "DATABASE_URL=postgres://user:password@host/name, or set DEBUG=1 to try the project out."
    )

database["CONN_MAX_AGE"] = None

# Two connections a process: `default` for requests and for the worker's claim, and `journal`, which
# the worker keeps in autocommit for what must outlive a rollback (docs/architecture.md).
DATABASES = {
    "default": database,
    "journal": {**database, "OPTIONS": {**database.get("OPTIONS", {})}, "TEST": {"MIRROR": "default"}},
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Applications -------------------------------------------------------------------------------

INSTALLED_APPS = [
    "config.apps.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "workflows",
    "onboarding",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"

# --- Workflows ----------------------------------------------------------------------------------

# Which release runs: written on every attempt, for "what broke with the last deploy?".
RELEASE = env.str("RELEASE", default="")

# Dotted paths of the definitions that this release knows.
WORKFLOWS = env.list("WORKFLOWS", default=["onboarding.workflow.ONBOARDING"])
