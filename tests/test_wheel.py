"""The wheel, as a stranger gets it: built, listed, and installed into an empty virtual environment with no extra."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from shutil import which

import pytest
from django.db import connection

from config.embedded.wheel import installation
from tests.processes import until
from tests.servers import ROOT, empty_database

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

# Django, psycopg, pydantic, what they need, and ourselves.
MOST_PACKAGES = 12
MOST_BYTES = 1_260_000

# Beside Python's own.
FILES = {".html", ".css", ".js", ".json", ".svg", ".typed", ".txt", ".md"}


def run(*command: object, cwd: Path, **environment: str) -> str:
    """What the command prints; it must end well. Nothing of this process's environment leads to the checkout."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept_environment(), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kept_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "PYTHON", "VIRTUAL_"))}


def server() -> dict[str, str]:
    """Where PostgreSQL is, and its programs, for processes that ask libpq."""
    connection.ensure_connection()
    at = connection.connection.info
    told = {"PGHOST": at.host, "PGPORT": str(at.port), "PGUSER": at.user, "PGPASSWORD": at.password}
    return told if which("createdb") else told | {"PATH": f"{installation() / 'bin'}:{os.environ['PATH']}"}


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and what that asks for."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    run(folder / "bin/pip", "install", "-qq", wheel, cwd=folder)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def project(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`startproject`, with the settings and the workflow of docs/install.md."""
    return fresh_project(python, tmp_path_factory.mktemp("project"))


def fresh_project(python: Path, folder: Path) -> Path:
    run(python.parent / "django-admin", "startproject", "shop", ".", cwd=folder)
    settings, workflow, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs/install.md").read_text(), flags=re.S)
    append(folder / "shop/settings.py", settings)
    (folder / "shop/workflow.py").write_text(workflow)
    return folder


def test_it_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {PurePosixPath(name).parts[0] for name in names}
    assert tops == {"workflows", "staff", "django_onramp-0.3.0.dist-info"}
    strange = [
        name for name in names if ".dist-info/" not in name and PurePosixPath(name).suffix not in {".py", *FILES}
    ]
    assert not strange
    wanted = {f"{app}/{path.relative_to(ROOT / app)}" for app in ("workflows", "staff") for path in files_of(app)}
    assert {name for name in names if ".dist-info/" not in name} == wanted | {"workflows/AGENTS.md"}
    assert "django_onramp-0.3.0.dist-info/licenses/LICENSE" in names
    assert wheel.stat().st_size < MOST_BYTES


def files_of(app: str) -> Iterator[Path]:
    tracked = run("git", "ls-files", "-co", "--exclude-standard", app, cwd=ROOT) if (ROOT / ".git").exists() else ""
    return (path for line in tracked.splitlines() if (path := ROOT / line).is_file())


def test_it_brings_few_packages(python: Path) -> None:
    count = "from importlib.metadata import distributions as d; print(*sorted({each.name for each in d()}))"
    installed = set(run(python, "-c", count, cwd=python.parent).split()) - {"pip", "setuptools"}
    assert len(installed) <= MOST_PACKAGES, installed


def test_a_fresh_project_passes_the_checks_and_runs_a_workflow(python: Path, project: Path) -> None:
    assert "no issues" in run(python, "manage.py", "check", cwd=project)
    taken = "import time; t = time.perf_counter(); import django; django.setup(); print(time.perf_counter() - t)"
    bare = (
        "from shop.settings import *\nINSTALLED_APPS = [app for app in INSTALLED_APPS if app.startswith('django.')]\n"
    )
    (project / "bare.py").write_text(bare)
    for settings in ("bare", "shop.settings"):
        seconds = float(run(python, "-c", taken, cwd=project, DJANGO_SETTINGS_MODULE=settings))
        print(f"django.setup() with {settings}: {seconds:.2f} s")  # noqa: T201 (for people: it depends on the machine)
    append(project / "shop/urls.py", URLS)
    with a_database(project):
        run(python, "manage.py", "migrate", "-v0", cwd=project)
        run(python, "manage.py", "shell", "-v0", "-c", ENTER, cwd=project)
        run(python, "manage.py", "runworker", "--drain", cwd=project)
        assert run(python, "manage.py", "shell", "-v0", "-c", LOOK, cwd=project).split() == SEEN
        with pytest.raises(AssertionError, match="couldn't be flushed"):  # what is on record stays, outside of tests
            run(python, "manage.py", "flush", "--no-input", cwd=project)


# What a project may leave out of its settings, and what `manage.py check` says then: what it is, and what to write.
LACKING = {
    r', "django.contrib.postgres"': "Add 'django.contrib.postgres'",
    r"DATABASES = \{.default.: .*\n": 'Write DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql"',
    r"WORKFLOWS = .*\n": "WORKFLOWS = ['shop.workflow.ORDER']",
    r"ROOT_URLCONF = .*\n": "In the module of ROOT_URLCONF write path('admin/', admin.site.urls)",
    r"STATIC_URL = .*\n": "write STATIC_URL = 'static/'",
    r".*'APP_DIRS'.*\n": "Write 'APP_DIRS': True in TEMPLATES",
    r"TEMPLATES = \[(.*\n)*?\]": "DjangoTemplates' instance must be configured in TEMPLATES",
    r".*'django.contrib.admin',\n": "INSTALLED_APPS lacks 'django.contrib.admin': add it",
    r".*'django.contrib.auth',\n": "INSTALLED_APPS lacks 'django.contrib.auth': add it",
    r".*'django.contrib.contenttypes',\n": "INSTALLED_APPS lacks 'django.contrib.contenttypes': add it",
    r".*'django.contrib.sessions',\n": "Add 'django.contrib.sessions'",
    r".*'django.contrib.messages',\n": "'django.contrib.messages' must be in INSTALLED_APPS",
    r".*'django.contrib.staticfiles',\n": "Add 'django.contrib.staticfiles'",
    r".*SessionMiddleware',\n": "SessionMiddleware' must be in MIDDLEWARE",
    r".*AuthenticationMiddleware',\n": "AuthenticationMiddleware' must be in MIDDLEWARE",
    r".*MessageMiddleware',\n": "MessageMiddleware' must be in MIDDLEWARE",
    r".*context_processors.auth',\n": "context_processors.auth' must be enabled",
    r".*context_processors.messages',\n": "context_processors.messages' must be enabled",
}


def test_each_setting_that_is_missing_is_named(python: Path, tmp_path: Path) -> None:
    project = fresh_project(python, tmp_path)
    settings = (project / "shop/settings.py").read_text()

    def told_without(number: int, pattern: str) -> str:
        text, removed = re.subn(pattern, "", settings, flags=re.M)
        assert removed == 1, pattern
        (project / f"without{number}.py").write_text(text)
        command = [python, "manage.py", "check", "--settings", f"without{number}"]
        done = subprocess.run(command, cwd=project, env=kept_environment(), capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(told_without, range(len(LACKING)), LACKING))
    named = zip(LACKING.items(), told, strict=True)
    assert not [(pattern, said) for (pattern, wanted), said in named if wanted not in said]


@contextmanager
def a_database(project: Path) -> Iterator[None]:
    """One on the server of the tests, for this project."""
    name = f"{connection.settings_dict['NAME']}_shop"
    address = {"NAME": name, **{key: server()[f"PG{key}"] for key in ("HOST", "PORT", "USER", "PASSWORD")}}
    with empty_database(name):
        append(project / "shop/settings.py", f"\nDATABASES['default'] |= {address!r}\nALLOWED_HOSTS = ['*']\n")
        yield


URLS = """
from django.urls import include
urlpatterns.append(path("", include("workflows.api.urls")))
"""
ENTER = """
from workflows.definition import definitions
from workflows.intake.submissions import start
from workflows.postgres.jsonb import parse
start(definitions()["order"], tenant="", business_key="1", payload=parse(b'{"sku": "A-1"}'), submitted_by="")
"""
LOOK = """
from django.contrib.auth import get_user_model
from django.test import Client
from workflows.models import Workflow
row = Workflow.objects.get()
print(row.status, row.context["parcel"].replace(" ", "_"))
client = Client()
client.force_login(get_user_model().objects.create_superuser("ada"))
for page in ("", "workflows/workflow/", f"workflows/workflow/{row.pk}/change/", "needs-a-person/", "audit/"):
    print(client.get(f"/admin/{page}").status_code)
print(client.get("/metrics").status_code, client.get("/healthz").status_code)
"""
SEEN = ["COMPLETE", "parcel_of_A-1", *["200"] * 5, "501", "200"]


# Users who sign in by their address, with tables and columns of their own names; and each request a transaction.
MODELS = """
from django.contrib.auth.models import AbstractUser, UserManager
from django.db import models

class People(UserManager):
    def get_by_natural_key(self, name):
        return self.get(email=name)

class Person(AbstractUser):
    username = None
    email = models.EmailField(unique=True)
    USERNAME_FIELD, REQUIRED_FIELDS = "email", []
    objects = People()
"""
SETTINGS = """
AUTH_USER_MODEL = "people.Person"
INSTALLED_APPS.append("people")
DATABASES["default"]["ATOMIC_REQUESTS"] = True
"""
ASKS = """
from datetime import timedelta
from pydantic import BaseModel
from workflows.definition import WorkflowDefinition
from workflows.waits import require_approval
class OrderContext(BaseModel):
    by: str | None = None
def ask(*, workflow, context):
    said = require_approval(workflow, "ship", question="Ship it?", team="operations", timeout=timedelta(days=1))
    return {"by": said.decided_by}
ORDER = WorkflowDefinition(name="order", steps=[ask], context_class=OrderContext)
"""
DECIDE = """
from datetime import timedelta
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.utils import timezone
from people.models import Person
from workflows.models import ManualTask, Workflow
ada = Person.objects.create(email="ada@example.com", is_staff=True, date_joined=timezone.now() - timedelta(days=2))
ada.user_permissions.set(Permission.objects.filter(content_type__app_label="workflows"))
ada.groups.add(Group.objects.get(name="operations"))
task, row = ManualTask.objects.get(), Workflow.objects.get()
client = Client()
client.force_login(ada)
for page in ("", "needs-a-person/", "audit/", "failures/", "workflows/manualtask/", "workflows/bulkoperation/"):
    print(client.get(f"/admin/{page}").status_code)
print(client.get(f"/admin/workflows/manualtask/{task.pk}/change/").status_code)
print(client.post(f"/admin/workflows/manualtask/{task.pk}/decide/", {"decision": "approve"}).status_code)
task.refresh_from_db()
print(task.state)
from django.db import connection
with connection.cursor() as cursor:
    cursor.execute("SELECT workflows_may_correct(%s)", [ada.pk])
    print(cursor.fetchone()[0])
"""


def test_a_project_with_users_of_its_own_and_atomic_requests(python: Path, project: Path) -> None:
    run(python, "manage.py", "startapp", "people", cwd=project)
    (project / "people/models.py").write_text(MODELS)
    (project / "shop/workflow.py").write_text(ASKS)
    append(project / "shop/settings.py", SETTINGS)
    with a_database(project):
        assert "no issues" in run(python, "manage.py", "check", cwd=project)
        run(python, "manage.py", "makemigrations", "people", "-v0", cwd=project)
        run(python, "manage.py", "migrate", "-v0", cwd=project)
        run(python, "manage.py", "shell", "-v0", "-c", ENTER, cwd=project)
        run(python, "manage.py", "runworker", "--drain", cwd=project)
        told = run(python, "manage.py", "shell", "-v0", "-c", DECIDE, cwd=project).split()
        assert told == [*["200"] * 7, "302", "approved", "True"]
        by = "from workflows.models import Workflow as W; print(W.objects.get().status, W.objects.get().context['by'])"

        def is_decided() -> bool:
            run(python, "manage.py", "runworker", "--drain", cwd=project)
            return run(python, "manage.py", "shell", "-v0", "-c", by, cwd=project) == "COMPLETE ada@example.com\n"

        until(is_decided, seconds=60)  # it can be undone for ten
        shown = ["workflow", "show", "1", "--actor", "ada@example.com"]
        assert "COMPLETE" in run(python, "manage.py", *shown, cwd=project).upper()


# The tasks of a project that has come from django-tasks-db or django-absurd; their quickstarts have these settings.
TASKS = [
    {"default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default"]}},
    {"default": {"BACKEND": "django_absurd.backends.AbsurdBackend"}},
]
ADD = """
try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

@task
def add(a: int, b: int) -> int:
    return a + b
"""
ENQUEUE = "from sums.tasks import add; print(add.enqueue(2, 3).id)"
RESULT = "from sums.tasks import add; r = add.get_result('{}'); print(r.status, r.return_value)"


def test_quickstarts_of_others_run_when_their_settings_are_changed(python: Path, project: Path) -> None:
    (shown,) = re.findall(r"^TASKS = .*", (ROOT / "docs/background-tasks.md").read_text(), flags=re.M)[:1]
    run(python, "manage.py", "startapp", "sums", cwd=project)
    (project / "sums/tasks.py").write_text(ADD)
    append(project / "shop/settings.py", f"\nINSTALLED_APPS.append('sums')\n{shown}\n")
    needs_backport = run(python, "-c", "import django; print(django.VERSION < (6,))", cwd=project).strip() == "True"
    if needs_backport:
        with pytest.raises(AssertionError, match=re.escape("pip install 'django-onramp[tasks]'")):
            run(python, "manage.py", "check", cwd=project)
        run(python, "-m", "pip", "install", "-qq", "django-tasks>=0.12,<1", cwd=project)
    with a_database(project):
        assert "no issues" in run(python, "manage.py", "check", cwd=project)
        run(python, "manage.py", "migrate", "-v0", cwd=project)
        for theirs in TASKS:
            ours = {alias: {**each, "BACKEND": "workflows.tasks.WorkflowsBackend"} for alias, each in theirs.items()}
            append(project / "shop/settings.py", f"\nTASKS = {ours}\n")
            key = run(python, "manage.py", "shell", "-v0", "-c", ENQUEUE, cwd=project).strip()
            run(python, "manage.py", "runworker", "--drain", cwd=project)
            assert run(python, "manage.py", "shell", "-v0", "-c", RESULT.format(key), cwd=project).split() == [
                "SUCCESSFUL",
                "5",
            ]
    append(project / "shop/settings.py", "\nTASKS = {}\n")


def test_another_package_of_the_name_is_noticed(python: Path, project: Path, tmp_path: Path) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/__init__.py").write_text("")
    ours = Path(run(python, "-c", "import workflows; print(workflows.__path__[0])", cwd=python.parent).strip())
    (tmp_path / "workflows/apps.py").write_text((ours / "apps.py").read_text())
    (tmp_path / "workflows/defaults.py").write_text((ours / "defaults.py").read_text())
    with pytest.raises(AssertionError, match="is not that of django-onramp: llama-index-workflows"):
        run(python, "manage.py", "check", cwd=project, PYTHONPATH=str(tmp_path))
