"""What a project of its own lacks is named, with what to write; what it does not set has a default."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from django.conf import global_settings
from django.contrib import admin
from django.contrib.auth.models import Group
from django.core.checks.registry import registry
from django.core.management import get_commands, load_command_class
from django.db import connections

from staff.defaults import DEFAULTS as OF_STAFF
from tests.config.test_settings import settings_of
from tests.servers import ROOT
from workflows import checks_of_settings, defaults
from workflows.checks_of_settings import (
    check_database,
    check_database_is_verified,
    check_hosts,
    check_named_definitions,
    check_users,
)
from workflows.console.checks import check_site, check_way_in
from workflows.definition import definitions
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
        check_way_in,
        checks_of_settings.check_sealing,
    )
    assert not [message for check in checks for message in check()]


def test_another_database_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings["default"], "ENGINE", "django.db.backends.sqlite3")
    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")
    (error,) = check_database()
    assert (error.id, "'django.db.backends.sqlite3'" in error.msg) == ("workflows.E030", True)
    assert '"ENGINE": "django.db.backends.postgresql"' in error.hint


@pytest.mark.parametrize("host", ["", "/run/postgresql", "@onramp", "localhost", "127.0.0.1", "127.0.1.1", "::1"])
@pytest.mark.parametrize("by", ["HOST", "host", "PGHOST"])
def test_a_database_on_this_machine_needs_no_certificate(host: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _modes_told(monkeypatch, {by: host}) == []
    assert _modes_told(monkeypatch, {by: f"{host},db.example.com"}) == ["db.example.com is reached with sslmode=prefer"]


@pytest.mark.parametrize("by", ["sslmode", "PGSSLMODE"])
@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"])
def test_a_database_elsewhere_is_verified(mode: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = _modes_told(monkeypatch, {"HOST": "10.1.2.3,::1,2001:db8::7", by: mode})
    elsewhere = ["10.1.2.3", "2001:db8::7"]
    assert told == [f"{host} is reached with sslmode={mode}" for host in elsewhere if mode != "verify-full"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"HOST": "db.example.com", "sslrootcert": "system"}, 0),
        ({"HOST": "db.example.com", "PGSSLROOTCERT": "system"}, 0),
        ({"HOST": "db.example.com", "sslrootcert": "/etc/ssl/ours.pem"}, 1),
        ({"HOST": "localhost", "hostaddr": "10.1.2.3"}, 1),
        ({"HOST": "db.example.com", "PGHOSTADDR": "127.0.0.1"}, 0),
        ({"HOST": "localhost.example.com"}, 1),
        ({"HOST": "db.example.com", "ENGINE": "django.db.backends.mysql"}, 0),
    ],
)
def test_what_decides_where_it_is_and_how_it_is_verified(
    given: Any, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(_modes_told(monkeypatch, given)) == told


def test_the_check_is_of_deployments() -> None:
    run = registry.get_checks(include_deployment_checks=True)
    assert check_database_is_verified in run
    assert check_database_is_verified not in registry.get_checks()


def _modes_told(monkeypatch: pytest.MonkeyPatch, given: dict[str, str]) -> list[str]:
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSSLROOTCERT"):
        monkeypatch.delenv(name, raising=False)
    for name in (name for name in given if name.startswith("PG")):
        monkeypatch.setenv(name, given[name])
    options = {name: value for name, value in given.items() if name.islower()}
    engine = given.get("ENGINE", "django.db.backends.postgresql")
    database = {"ENGINE": engine, "HOST": given.get("HOST", ""), "OPTIONS": options}
    monkeypatch.setattr(connections, "settings", {"default": database, "attempt_log": database})
    messages = list(check_database_is_verified())
    assert {each.id for each in messages} <= {"workflows.W040"}
    return [each.msg.removeprefix("The database on ").partition(": somebody")[0] for each in messages]


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


def test_nothing_to_run_and_naive_times_are_told(settings: Any, request: pytest.FixtureRequest) -> None:
    definitions.cache_clear()
    request.addfinalizer(definitions.cache_clear)
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


def test_the_attempt_log_is_made_of_no_other_database(monkeypatch: Any) -> None:
    """Its options would be unknown to it: a check would end with a traceback in place of its message."""
    monkeypatch.setattr(connections, "settings", {"default": {"ENGINE": "django.db.backends.sqlite3"}})
    defaults.add_attempt_log()
    assert [*connections.settings] == ["default"]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgres://onramp@db1/onramp", []),
        ("postgres://onramp@haproxy:5000/onramp?target_session_attrs=read-write", []),
        ("postgres://onramp@db1:5432,db2:5433/onramp?target_session_attrs=read-write", []),
        ("postgres://onramp@db1,db2,db3/onramp?target_session_attrs=primary", []),
        ("postgres://onramp@%2Frun%2Fa:5432,%2Frun%2Fb:5432/onramp?target_session_attrs=read-write", []),
        ("postgres://onramp@db1,db2/onramp", ["workflows.E054"]),
        ("postgres://onramp@db1,db2/onramp?target_session_attrs=prefer-standby", ["workflows.E054"]),
        ("postgres://onramp@db1/onramp?target_session_attrs=read-only", ["workflows.E054"]),
        ("postgres://onramp@db1:5432,db2:5433,db3/onramp?target_session_attrs=read-write", ["workflows.E055"]),
        ("postgres://onramp@db1,,db3/onramp?target_session_attrs=read-write", ["workflows.E055"]),
    ],
)
def test_several_hosts_are_refused_unless_the_primary_is_chosen(url: str, found: list[str], monkeypatch: Any) -> None:
    database = settings_of(DATABASE_URL=url, DEBUG="1")["DATABASES"]["default"]
    monkeypatch.setattr(connections, "settings", {"default": database})
    assert [error.id for error in check_hosts()] == found
    assert database["OPTIONS"]["connect_timeout"] == (2 if "," in url else 3)
