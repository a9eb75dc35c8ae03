SECRET_KEY = "made-up"  # noqa: S105
INSTALLED_APPS = ["django_tasks_db"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "django"}}
TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}
