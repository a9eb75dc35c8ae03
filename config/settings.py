"""Settings, only from the environment (django-environ). If the project's folder has an `.env`, it is read."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import django
import environ
from django.core.exceptions import ImproperlyConfigured

from config.logs import LINE

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = BASE_DIR / "var"

env = environ.Env()
env.read_env(BASE_DIR / ".env")

# --- Mode ---------------------------------------------------------------------------------------

DEBUG = env.bool("DEBUG", default=False)

if DEBUG:
    SECRET_KEY = env.str("SECRET_KEY", default="") or "insecure-and-only-for-debug-on-this-machine"
    ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
else:
    SECRET_KEY = env.str("SECRET_KEY", default="")
    if not SECRET_KEY:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set. Set it to a long random string, or set DEBUG=1 to try the project out."
        )
    ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=[])

# --- HTTPS --------------------------------------------------------------------------------------

# With DEBUG everything is plain http on localhost.
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS", default=[])

if not DEBUG:
    SECURE_SSL_REDIRECT = env.bool("SECURE_SSL_REDIRECT", default=True)
    # Load balancers and Prometheus connect from inside, in plain http.
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
    # 30 days: long enough to protect, short enough to survive a certificate that could not be renewed.
    SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", default=30 * 24 * 60 * 60)
    SECURE_HSTS_INCLUDE_SUBDOMAINS = env.bool("SECURE_HSTS_INCLUDE_SUBDOMAINS", default=True)
    # Preloading binds a whole domain, for months and in every browser: one host must not decide that.
    SILENCED_SYSTEM_CHECKS = ["security.W021"]
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True

    # The header in which our own proxy says "https", such as X-Forwarded-Proto. Set it only if a proxy sets or strips
    # that header: otherwise a client could pass plain http for https.
    if proxy_header := env.str("SECURE_PROXY_SSL_HEADER", default=""):
        SECURE_PROXY_SSL_HEADER = (f"HTTP_{proxy_header.upper().replace('-', '_')}", "https")

# --- Sign-in (staff/) ---------------------------------------------------------------------------

_RULES = "django.contrib.auth.password_validation"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"{_RULES}.MinimumLengthValidator", "OPTIONS": {"min_length": 12}},
    {"NAME": f"{_RULES}.CommonPasswordValidator"},
    {"NAME": f"{_RULES}.UserAttributeSimilarityValidator"},
    {"NAME": f"{_RULES}.NumericPasswordValidator"},
]
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",  # the throttle: before a password is compared
    "django.contrib.auth.backends.ModelBackend",
]

# Where a sign-in goes if it asked for another site.
LOGIN_REDIRECT_URL = "admin:index"

# The throttle's other settings are in staff/defaults.py.
AXES_COOLOFF_TIME = timedelta(minutes=15)

# Days for which sign-ins, sign-outs and failures are stored.
SIGN_INS_KEPT_DAYS = env.int("SIGN_INS_KEPT_DAYS", default=365)
# Days for which the audit is stored: six years, as HIPAA requires of such records (45 CFR 164.316(b)(2)). The database
# refuses less than a year.
AUDIT_KEPT_DAYS = env.int("AUDIT_KEPT_DAYS", default=2192)
# Days for which settled messages, and signals that no workflow waits for, are stored.
MESSAGES_KEPT_DAYS = env.int("MESSAGES_KEPT_DAYS", default=90)

# The header in which our own proxy names the client's address, such as X-Forwarded-For. Set it only if a proxy appends
# to it or sets it: otherwise a guesser chooses the address that their failures count for.
CLIENT_ADDRESS_HEADER = env.str("CLIENT_ADDRESS_HEADER", default="")

# --- Single sign-on (staff/single_sign_on.py, docs/adr/0038) --------------------------------------

# The OpenID provider's issuer, exactly as it writes it. Empty: people sign in by passwords.
OIDC_ISSUER = env.str("OIDC_ISSUER", default="")
OIDC_CLIENT_ID = env.str("OIDC_CLIENT_ID", default="")
OIDC_CLIENT_SECRET = env.str("OIDC_CLIENT_SECRET", default="")
OIDC_SCOPES = env.list("OIDC_SCOPES", default=["openid", "profile", "email"])
# A JSON object: values of the claim `groups`, each with the name of our group.
OIDC_GROUPS: dict[str, str] = env.json("OIDC_GROUPS", default={})
# The accounts that still sign in by a password, with a second factor, while the provider is down.
OIDC_BREAK_GLASS = [name.strip() for name in env.list("OIDC_BREAK_GLASS", default=[]) if name.strip()]
if OIDC_ISSUER:
    if not (OIDC_CLIENT_ID and OIDC_CLIENT_SECRET and OIDC_GROUPS):
        raise ImproperlyConfigured("With OIDC_ISSUER set OIDC_CLIENT_ID, OIDC_CLIENT_SECRET and OIDC_GROUPS, too.")
    if not DEBUG and not OIDC_ISSUER.startswith("https://"):
        raise ImproperlyConfigured("OIDC_ISSUER must be https: over http anybody on the way could sign in as anybody.")

# --- Second factor (staff/second_factor.py, docs/adr/0038) --------------------------------------

# Users who may move money, see health data in clear, or administer users need a second factor (staff/enrolment.py).
SECOND_FACTOR_REQUIRED = env.bool("SECOND_FACTOR_REQUIRED", default=not DEBUG)

# The other settings of allauth are in staff/defaults.py.

# Used codes and counts of wrong ones: in the database (staff/migrations), so that all processes share them. 10,000 are
# more than a day's; beyond that Django deletes a third, and would forget used codes.
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "staff_cache",
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    }
}

# --- Sessions (staff/sessions.py) ---------------------------------------------------------------

SESSION_ENGINE = "staff.session_store"
# At most a shift of support work. The console shows people's data, so at most 15 minutes without activity.
SESSION_COOKIE_AGE = 8 * 60 * 60
SESSION_IDLE_SECONDS = 15 * 60
SESSION_WARNING_SECONDS = 2 * 60  # before the end of either
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"

# --- Database -----------------------------------------------------------------------------------

if env.str("DATABASE_URL", default=""):
    database: dict[str, Any] = env.db_url("DATABASE_URL")
    if database.get("ENGINE") != "django.db.backends.postgresql":
        raise ImproperlyConfigured("DATABASE_URL must name a PostgreSQL server: postgres://user:password@host/name")
    database["HOST"] = unquote(database["HOST"])  # a socket's folder: postgres://user@%2Fvar%2Frun%2Fpostgresql/name
elif DEBUG:
    # Our own server, which the first connection starts or joins: see config/embedded. HOST is its home.
    database = {"ENGINE": "config.embedded", "NAME": "onramp", "HOST": str(VAR_DIR / "postgres")}
else:
    raise ImproperlyConfigured(
        "DATABASE_URL is not set, and the embedded PostgreSQL is for DEBUG only. Set "
        "DATABASE_URL=postgres://user:password@host/name, or set DEBUG=1 to try the project out."
    )

database["CONN_MAX_AGE"] = None
# The console tests a reused connection before each request: PostgreSQL may have restarted. The API and the workers
# notice without that round trip: see workflows/postgres/deadlines.py.
database["CONN_HEALTH_CHECKS"] = True
database["OPTIONS"] = {
    # Seconds. Without it a silent server would block each request for minutes. For each of several hosts, the primary
    # perhaps the last of them: two, the least that libpq takes.
    "connect_timeout": 2 if "," in database["HOST"] else 3,
    # The kernel probes a connection that is silent for 5 s three times, 2 s apart, and closes it after 11 s.
    # `tcp_user_timeout` is the same limit for unacknowledged data, in milliseconds. These limits end at the next host,
    # so they work with a pooler, but not if that host passes nothing on: see workflows/postgres/half_open.py.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    # Parameters are sent apart from their statement, because PostgreSQL's log and pg_stat_activity show its text.
    "server_side_binding": True,
    **database.get("OPTIONS", {}),
}

# For requests, and for the worker's claim. The worker's `attempt_log` is made from it, in autocommit, for what must
# outlive a rollback (docs/internals/claim.md).
DATABASES = {"default": database}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Applications -------------------------------------------------------------------------------

INSTALLED_APPS = [
    "staff",  # before auth, for its `createsuperuser`, and before workflows, for its template
    "workflows",  # before the admin, for its templates
    "config.apps.ConsoleConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "axes",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.mfa",
    "allauth.usersessions",
    "django_linear_migrations",  # two branches that each add a migration conflict in git, not at `migrate`
    "django.contrib.postgres",  # after workflows, which must set up a session before its first query
    "onboarding",
]

MIDDLEWARE = [
    "config.middleware.api_as_in_the_intake",
    "config.middleware.content_security_policy",  # before the next one, which refuses unknown hosts itself
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "workflows.console.zone.reader_zone",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "staff.sessions.limit_sessions",
    "staff.still_signed_in.ask_again",
    "staff.step_up.AskFirst",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "config.urls"
FILE_UPLOAD_HANDLERS = ["config.uploads.NoFiles"]
CSRF_FAILURE_VIEW = "config.errors.csrf_failure"
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
# With DEBUG, static files are served from their sources: also by gunicorn, and without collectstatic.
WHITENOISE_AUTOREFRESH = WHITENOISE_USE_FINDERS = DEBUG

# --- Workflows ----------------------------------------------------------------------------------

# The running release. Every attempt records it, for "what broke with the last deploy?".
RELEASE = env.str("RELEASE", default="")

# The bearer token that Prometheus sends to `/metrics`. Empty: with DEBUG everybody may read it, otherwise nobody.
METRICS_TOKEN = env.str("METRICS_TOKEN", default="")

# How long the server lets a worker be silent on its locked row. 0: 30 seconds longer than the longest step may take. A
# worker whose step takes longer loses the row.
WORKER_LEASE_SECONDS = env.float("WORKER_LEASE_SECONDS", default=0)
# The file in which `runworker` reports on its processes to `workerhealth`, unless `--health-file` names another. Empty:
# none.
WORKER_HEALTH_FILE = env.str("WORKER_HEALTH_FILE", default="")

# Dotted paths of the definitions that this release knows.
WORKFLOWS = env.list("WORKFLOWS", default=["onboarding.workflow.ONBOARDING"])
# What pages call the person that a workflow is about.
PERSON_WORD = env.str("PERSON_WORD", default="patient")
# The definition of POST /v1/submissions. Empty in processes without submissions, such as workers.
SUBMISSION_WORKFLOW = env.str("SUBMISSION_WORKFLOW", default="onboarding")

# Dotted paths of this release's SignalSources: events of others that become signals (docs/api.md).
SIGNAL_SOURCES = env.list("SIGNAL_SOURCES", default=[])

# Comma-separated secrets that hash search keys: the first writes, all search. Empty outside DEBUG: one is made from
# SECRET_KEY, and a check warns. See docs/deployment.md.
SEARCH_KEYS = [key.strip() for key in env.list("SEARCH_KEYS", default=[]) if key.strip()]
if DEBUG and not SEARCH_KEYS:
    SEARCH_KEYS = ["insecure-and-only-for-debug-on-this-machine"]

# Comma-separated keys that seal secret fields: the first seals, all open. Empty: as for SEARCH_KEYS.
DATA_KEYS = [key.strip() for key in env.list("DATA_KEYS", default=[]) if key.strip()]
if DEBUG and not DATA_KEYS:
    DATA_KEYS = ["insecure-and-only-for-debug-on-this-machine"]

# --- The intake (config/server.py) ----------------------------------------------------------------

# Megabytes of a process's requests: bodies that are being read or wait to be stored. More is refused.
INTAKE_HELD_MEGABYTES = env.int("INTAKE_HELD_MEGABYTES", default=128)

# The consoles of other cells (docs/scaling.md), by name: "b=https://b.onramp.example.com,c=https://c.onramp.example.com".
CELLS = env.dict("CELLS", default={})

# --- Kafka (`manage.py consumekafka`) -------------------------------------------------------------

KAFKA_BROKERS = env.str("KAFKA_BROKERS", default="")
KAFKA_TOPICS = [topic.strip() for topic in env.list("KAFKA_TOPICS", default=[]) if topic.strip()]
# Topics of submissions, each with the API client that sends them: "onboardings=shop".
KAFKA_SUBMISSIONS = [pair.strip() for pair in env.list("KAFKA_SUBMISSIONS", default=[]) if pair.strip()]
KAFKA_GROUP = env.str("KAFKA_GROUP", default="onramp")
# A JSON object of librdkafka's properties: SASL, TLS. Only the command reads it, so a mistake stops nothing else.
KAFKA_OPTIONS = env.str("KAFKA_OPTIONS", default="")

# --- What a queue's door refuses (workflows/features/queues/refused.py) ------------------------------------

# How many refused submissions of a topic or queue are stored, sealed, until somebody settles them; the rest stays in
# the broker's dead letters. A sender's mistake shows in its first few, and a thousand of 256 KiB, the largest size, are
# 350 MB. 0 stores none.
REFUSED_SUBMISSIONS_KEPT = env.int("REFUSED_SUBMISSIONS_KEPT", default=1000)

# --- The outbox (`manage.py relayoutbox`, docs/outbox.md) ----------------------------------------

# A JSON object of destinations by name; empty for none. It contains secrets.
OUTBOX_DESTINATIONS = env.str("OUTBOX_DESTINATIONS", default="")
# The CloudEvents attribute `source` of our events.
OUTBOX_SOURCE = env.str("OUTBOX_SOURCE", default="onramp")

# --- E-mail about what waits for people (docs/notices.md) -----------------------------------------

# The mail server, as "smtp+tls://user:password@mail.example.com:587"; without it mail is printed.
_email_url = env.str("EMAIL_URL", default="")
_mail = env.email_url_config(_email_url or "consolemail://")
if django.VERSION < (6, 1):
    vars().update(_mail)
elif DEBUG or _email_url:
    _server = {"host": "HOST", "port": "PORT", "username": "HOST_USER", "password": "HOST_PASSWORD"}
    _options = {option: _mail[f"EMAIL_{name}"] for option, name in _server.items() if _mail[f"EMAIL_{name}"]}
    _options |= {option: True for option in ("use_tls", "use_ssl") if _mail.get(f"EMAIL_{option.upper()}")}
    MAILERS = {"default": {"BACKEND": _mail["EMAIL_BACKEND"], "OPTIONS": _options}}
# The address of the console, for the links in mail: "https://onramp.example.com".
CONSOLE_URL = env.str("CONSOLE_URL", default="")

# --- SQS (`manage.py consumesqs`) -----------------------------------------------------------------

# The URL of the queue of submissions, the API client that sends them, and the URL of the queue for refused ones.
# Region, credentials and AWS_ENDPOINT_URL are boto3's variables.
SQS_QUEUE_URL = env.str("SQS_QUEUE_URL", default="")
SQS_CLIENT = env.str("SQS_CLIENT", default="")
SQS_DEAD_LETTERS_URL = env.str("SQS_DEAD_LETTERS_URL", default="")
# Seconds in which nobody else gets what a consumer has received, and so the delay after a consumer dies. Storing a
# group takes ten at most; the time is extended while the database is away.
SQS_VISIBILITY_SECONDS = env.int("SQS_VISIBILITY_SECONDS", default=60)

# --- Logging ------------------------------------------------------------------------------------

LOG_LEVEL = env.str("LOG_LEVEL", default="INFO").upper()
# The name of a formatter below; gunicorn.conf.py reads it, too.
LOG_FORMAT = env.str("LOG_FORMAT", default="line")

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "config.logs.Formatter", "format": LINE},
        "json": {"()": "config.logs.JsonFormatter"},
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT},
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
    "loggers": {
        # Without handlers: Django's would mail the admins, and print only with DEBUG.
        "django": {"handlers": [], "level": "INFO"},
        # httpx logs the URL of every request at INFO; the libraries below it log headers at DEBUG.
        "httpx": {"level": "WARNING"},
        "httpcore": {"level": "WARNING"},
        # boto3's libraries log the bodies of messages at DEBUG.
        "botocore": {"level": "WARNING"},
        "urllib3": {"level": "WARNING"},
        # axes logs each of its steps at INFO; failed sign-ins and refusals are warnings.
        "axes": {"level": "WARNING"},
    },
}

# --- The services that onboarding calls ---------------------------------------------------------

# All below one root, unless a service has its own address. Outside DEBUG a system check fails without either: a worker
# that calls the wrong host is worse than one that does not start.
SERVICES_URL = env.str("SERVICES_URL", default="http://127.0.0.1:8100" if DEBUG else "").rstrip("/")
# Services with their own address: "payments=https://pay.example.com,tokens=https://tokens.example.com/v2".
SERVICE_ADDRESSES = env.dict("SERVICE_ADDRESSES", default={})
SERVICES = {
    name: SERVICE_ADDRESSES.pop(name, SERVICES_URL and f"{SERVICES_URL}/{name}").rstrip("/")
    for name in ("accounts", "tokens", "profiles", "insurance", "visits", "payments", "programs", "messages")
}
if SERVICE_ADDRESSES:
    raise ImproperlyConfigured(f"SERVICE_ADDRESSES names no service of ours: {', '.join(SERVICE_ADDRESSES)}.")
# Where staff search for a charge: an address with {key} for the idempotency key.
PAYMENTS_SEARCH_URL = env.str("PAYMENTS_SEARCH_URL", default="")
# Seconds to wait for an answer: shorter than a step may take, longer than a service needs on a bad day.
SERVICES_TIMEOUT = env.float("SERVICES_TIMEOUT", default=10)
