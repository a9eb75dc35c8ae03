"""What a project of its own lacks is named, with what to write; what it does not set has a default."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from django.conf import global_settings
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.management import get_commands, load_command_class
from django.db import connections

from staff.defaults import DEFAULTS as OF_STAFF
from tests.servers import ROOT
from workflows import checks_of_settings, defaults
from workflows.checks_of_settings import check_database, check_named_definitions, check_users
from workflows.console.checks import check_site
from workflows.extension import installed


def test_each_setting_that_the_packages_read_has_a_default() -> None:
    known = {*defaults.DEFAULTS, *OF_STAFF, *vars(global_settings)}
    read = {
        (str(path.relative_to(ROOT)), node.attr)
        for app in ("workflows", "staff")
        for path in (ROOT / app).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "settings"
        if node.attr.isupper()
    }
    assert len(read) > 50
    assert not [(path, name) for path, name in read if name not in known]


def test_users_are_never_taken_for_djangos_own() -> None:
    of_django = ("isinstance(request.user, User)", "User.objects", "__username", 'order_by("username")')
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "workflows").rglob("*.py")}
    assert not [(path, each) for path, text in texts.items() for each in of_django if each in text]


def test_this_project_has_no_issue() -> None:
    checks = (
        check_database,
        check_named_definitions,
        check_users,
        check_site,
        checks_of_settings.check_sealing,
    )
    assert not [message for check in checks for message in check()]


def test_another_database_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")
    (error,) = check_database()
    assert (error.id, "'django.db.backends.sqlite3'" in error.msg) == ("workflows.E030", True)
    assert '"ENGINE": "django.db.backends.postgresql"' in error.hint


def test_a_missing_app_and_a_foreign_site_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_of_settings.apps, "is_installed", lambda name: name != "django.contrib.postgres")
    monkeypatch.setattr(admin, "site", admin.AdminSite())
    assert [(each.id, "'django.contrib.postgres'" in each.hint) for each in check_database()] == [
        ("workflows.E031", True)
    ]
    assert [(each.id, "'workflows' before 'django.contrib.admin'" in each.hint) for each in check_site()] == [
        ("workflows.E032", True)
    ]


def test_a_project_names_one_app_for_the_commands_of_all_features() -> None:
    brought = [path for each in installed() for path in each.commands]
    there = (ROOT / "workflows/features").glob("*/commands/[a-z]*.py")
    assert sorted(brought) == sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in there)
    for path in brought:
        name = path.rpartition(".")[2]
        assert get_commands()[name] == "workflows"
        assert load_command_class("workflows", name).__module__ == path


def test_nothing_to_run_and_naive_times_are_told(settings: Any) -> None:
    settings.WORKFLOWS, settings.USE_TZ = [], False
    assert [(each.id, each.hint[:4]) for each in check_named_definitions()] == [
        ("workflows.W033", "List"),
        ("workflows.E034", "Writ"),
    ]


def test_users_without_rights_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks_of_settings, "get_user_model", lambda: Group)
    (error,) = check_users()
    assert (error.id, "lacks email, is_active, is_staff" in error.msg) == ("workflows.E035", True)


@pytest.mark.parametrize("own", [{}, {"attempt_log": {"HOST": "past-the-pooler"}}])
def test_the_attempt_log_is_made_of_default_unless_the_project_has_one(own: Any, monkeypatch: Any) -> None:
    default = {"HOST": "db", "ATOMIC_REQUESTS": True, "OPTIONS": {"connect_timeout": 3}, "TEST": {"MIRROR": None}}
    databases = {"default": default, **own}
    monkeypatch.setattr(connections, "settings", databases)
    defaults.add_attempt_log()
    assert databases["default"] is default
    made = {
        "HOST": "db",
        "ATOMIC_REQUESTS": False,
        "OPTIONS": {"connect_timeout": 3, "prepare_threshold": 5},
        "TEST": {"MIRROR": "default"},
    }
    assert databases["attempt_log"] == own.get("attempt_log", made)
