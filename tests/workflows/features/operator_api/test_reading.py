"""What the operator's API shows: what the console shows the person behind the key, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from tests.workflows import rows
from tests.workflows.admin.conftest import Login, as_, letters, parcels
from tests.workflows.admin.walk.scene import CANARIES, GROUPS, Scene
from tests.workflows.features.operator_api.people import Program, person
from workflows.console.base import ConsoleAdmin
from workflows.ingress import api_keys
from workflows.models import Access, ApiKey, Effect, Search, Workflow

__all__ = ["as_", "letters", "parcels"]

# Of filters that the page does not offer, what links ask for.
NOT_OFFERED = {"unexpected": ["yes"], "ended": ["today"]}
LIST = "/admin/workflows/workflow/"
pytestmark = pytest.mark.django_db


def ids(found: dict[str, Any]) -> list[int]:
    return [each["id"] for each in found["workflows"]]


@pytest.mark.slow
def test_each_filter_and_order_finds_what_the_console_lists(as_: Login) -> None:
    scene, boss = Scene(), as_("superuser")
    for which in ("failed", "submission"):
        Workflow.objects.filter(pk=scene.args[which]).update(failed_release="r7", last_error_code="gone")
    program = Program(User.objects.get(username="some-superuser"))
    page: Any = admin.site.get_model_admin(Workflow)
    tried = compared = 0
    for each in page.list_filter:
        name = each.parameter_name
        for with_ in ("", "state=failed&"):
            chosen = boss.get(f"{LIST}?{with_}").context["cl"]
            spec = next((of for of in chosen.filter_specs if getattr(of, "parameter_name", "") == name), None)
            values = [value for value, _ in spec.lookup_choices] if spec else NOT_OFFERED.get(name, [])
            for value in values:
                query = {**({"state": "failed"} if with_ else {}), name: str(value)}
                listed = [row.pk for row in boss.get(LIST, query).context["cl"].result_list]
                answer = program.client.get("/v1/operator/workflows", query, headers=program._headers)
                assert ids(answer.json()) == listed, query
                tried, compared = tried + 1, compared + bool(listed)
    assert (tried > 60, compared > 30) == (True, True)


def test_pages_have_each_row_once_while_others_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsoleAdmin, "list_per_page", 3)
    made = [rows.failed().pk for _ in range(8)]
    program, found = Program(person("anna", "support")), []
    url: str | None = "workflows?state=failed&order=newest"
    while url:
        answer = program.get(url)
        found += ids(answer)
        rows.failed()
        url = answer["next"]
    assert found == made[::-1]


@pytest.mark.parametrize(
    "query",
    [
        "email=a@b.example",
        "step=chrage",
        "state=lost",
        "failed=then",
        "preset=attention",
        "after=x",
        "order=by-name",
        "o=1",
    ],
)
def test_a_filter_or_value_that_there_is_not_is_refused(query: str) -> None:
    rows.failed()
    for program, of in (Program(person("anna", "support")), "workflows"), (Program(person("ben", "support")), "tasks"):
        told = program.get(f"{of}?{query}", 422)
        assert told["code"] == "filter_invalid"
        assert f"filter {query.partition('=')[0]}," in told["detail"]


def test_a_name_that_may_be_a_patients_is_not_repeated() -> None:
    told = Program(person("anna", "support")).get("workflows?nina@example.com=1", 422)
    assert (told["code"], "nina" in str(told)) == ("filter_invalid", False)


def test_each_step_of_a_definition_is_a_value() -> None:
    row = rows.failed(current_step="charge")
    assert ids(Program(person("anna", "support")).get("workflows?step=charge")) == [row.pk]


def test_one_workflow_its_history_and_its_ledger_are_what_its_page_tells(as_: Login) -> None:
    row = rows.unclear_charge().workflow
    Effect.objects.filter(workflow=row).update(idempotency_key="")  # as later releases leave it out
    rows.event(row, "retry_scheduled", attempt=1, step="charge", detail={"error_code": "unreachable"})
    program = Program(person("anna", "support lead"))
    page = as_("support lead").get(f"{LIST}{row.pk}/change/").context
    told = program.get(f"workflows/{row.pk}")
    assert (told["standing"], told["to_tell"], told["money"]) == (page["standing"], page["to_tell"], page["money"])
    assert told["may_propose"]["retry"] == "It is waiting: there is nothing to retry."
    (event,) = program.get(f"workflows/{row.pk}/history")["events"]
    assert (event["kind"], event["text"]) == ("retry_scheduled", page["history"][0].text)
    (call,) = program.get(f"workflows/{row.pk}/ledger")["calls"]
    assert (call["step"], call["state"], call["title"]) == ("execute_checkout", "unknown", "Charge the card")
    assert call["idempotency_key"] == page["effects"][0][2] == f"{row.key}:execute_checkout"
    looked = Access.objects.filter(actor="anna", workflow=row, detail={"key": "Chat"})
    assert looked.count() == 1  # however often it asks within a quarter of an hour


def test_a_history_is_read_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.console.workflow_page.EVENTS_SHOWN", 2)
    row = rows.failed()
    made = [rows.event(row, "failed").pk for _ in range(5)][::-1]
    program, found = Program(person("anna", "support")), []
    url: str | None = f"workflows/{row.pk}/history"
    while url:
        answer = program.get(url)
        found.append([each["id"] for each in answer["events"]])
        url = answer["next"]
    assert found == [made[:2], made[2:4], made[4:]]


def test_tasks_are_those_for_whom_the_console_says(as_: Login) -> None:
    own = rows.open_task(rows.waiting(task=False), team="clinicians")
    other = rows.open_task(rows.waiting(task=False), team="pharmacists")
    program = Program(person("anna", "approver", "clinicians"))
    assert [each["task"] for each in program.get("tasks")["tasks"]] == [own.pk]
    assert [each["task"] for each in program.get("tasks?whose=others")["tasks"]] == [other.pk]
    assert {each["whose"] for each in program.get("tasks?whose=all")["tasks"]} == {"Clinicians", "Pharmacists"}
    told = program.get(f"tasks/{other.pk}")
    assert (told["team"], told["may_propose"]["approve"]) == (
        "pharmacists",
        "It is for the team pharmacists, and you are not in it.",
    )


def test_counts_are_those_of_home(as_: Login) -> None:
    for _ in range(3):
        rows.failed()
    rows.open_task(rows.waiting(task=False))
    client = as_("support lead")
    shown = client.get("/admin/").context
    told = Program(User.objects.get(username="some-support lead")).get("counts")
    assert [told["verdict"], str(told["for_you"]["number"])] == [shown["health"].word, shown["needs_a_person"]]
    assert [(each["label"], str(each["number"])) for each in told["numbers"].values()] == [
        (label, number) for label, number, _ in shown["numbers"]
    ]
    assert told["states"]["failed"] == {"number": 3, "is_exact": True}


def test_find_takes_a_post_and_leaves_nothing_of_the_text(letters: None) -> None:
    row = rows.workflow(workflow_type="letter", payload={"to": {"email": "a@example.com"}}, business_key="B-7")
    program = Program(person("anna", "support"))
    (found,) = program.post("workflows/find", {"text": "B-7"}, 200)["workflows"]
    assert (found["id"], found["by"]) == (row.pk, "business key")
    assert Search.objects.values_list("actor", "api_key", "hits").get() == ("anna", "Chat", 1)
    assert program.get("workflows/find", 405)["code"] == "method_not_allowed"
    assert program.post("workflows/find", {"text": " "}, 422)["code"] == "text_invalid"


# --- Masks and rights -----------------------------------------------------------------------------------

PARTS = ("", "/history", "/ledger")


@pytest.mark.slow
def test_nothing_that_a_patient_has_sent_is_told_to_any_group() -> None:
    scene, read = Scene(), 0
    every = [f"workflows/{pk}{part}" for pk in Workflow.objects.values_list("pk", flat=True) for part in PARTS]
    some = [f"workflows/{scene.args[each]}" for each in ("failed", "waiting", "to-correct", "given-up", "parked")]
    tasks = [
        f"tasks/{scene.args[each]}" for each in ("anybodys", "of-own-team", "question", "unclear-call", "undecided")
    ]
    for group in ("superuser", *sorted(GROUPS)):
        user = person(group.replace(" ", "-"), group, "clinicians", is_superuser=group == "superuser")
        program = Program(user)
        for path in (*(every if user.is_superuser else some), *tasks, "workflows", "tasks?whose=all", "counts"):
            response = program.client.get(f"/v1/operator/{path}", headers=program._headers)
            told = response.content.decode().lower()
            assert not [each for each in (*CANARIES, "traceback") if each in told], (group, path)
            read += response.status_code == 200
    assert read > 150


def test_a_key_sees_what_its_person_may_see_now_and_not_what_they_could_before() -> None:
    row, user = rows.failed(), person("anna")
    program = Program(user)
    for path in ("workflows", f"workflows/{row.pk}", f"workflows/{row.pk}/ledger", "tasks", "counts"):
        assert program.get(path, 403)["code"] == "not_permitted"
    given = Permission.objects.get(codename="view_workflow")
    user.user_permissions.add(given)
    assert ids(program.get("workflows")) == [row.pk]
    assert program.get("counts")["numbers"].keys() == {"failed", "failed_today", "overdue_waits"}
    user.user_permissions.remove(given)
    assert program.get("workflows", 403)["code"] == "not_permitted"


@pytest.mark.parametrize("fields", [{"is_active": False}, {"is_staff": False}])
def test_a_key_dies_with_its_persons_account_at_once(fields: dict[str, bool]) -> None:
    program = Program(person("anna", "support"))
    program.get("workflows")
    User.objects.filter(username="anna").update(**fields)
    assert program.get("workflows", 401)["code"] == "api_key_invalid"


def test_a_revoked_key_is_refused_at_once_and_an_expired_one_too() -> None:
    program = Program(person("anna", "support"))
    program.get("workflows")
    ApiKey.objects.update(revoked_at=timezone.now())  # as another process does it
    assert program.get("workflows", 401)["code"] == "api_key_invalid"
    late = Program(person("ben", "support"), expires_at=timezone.now() + timedelta(days=1))
    ApiKey.objects.filter(person=late.user).update(expires_at=timezone.now() - timedelta(seconds=1))
    api_keys.table.invalidate()
    assert late.get("workflows", 401)["code"] == "api_key_expired"


def test_keys_of_clients_and_of_people_are_of_two_kinds(client: Client) -> None:
    row = rows.failed()
    of_client = Program(person("anna", "support"))
    of_client.key = api_keys.create("shop", may=["cancel", "read-history"])
    assert of_client.get("workflows", 403)["code"] == "not_permitted"
    headers = {"Authorization": f"Bearer {Program(person('ben', 'engineer')).key}"}
    for path in ("submissions", "workflows"):
        assert client.get(f"/v1/{path}/{row.idempotency_key}", headers=headers).json()["code"] == "not_permitted"
    assert client.get("/v1/operator/workflows").json()["code"] == "api_key_missing"
    assert client.get("/v1/operator/nothing").json()["code"] == "not_found"


def test_a_key_that_sends_too_much_waits() -> None:
    program = Program(person("anna", "support"), per_second=0.5)
    program.get("workflows")
    assert program.get("workflows", 429)["code"] == "rate_limited"


def test_a_session_of_the_console_is_no_key(as_: Login) -> None:
    assert as_("superuser").get("/v1/operator/workflows").status_code == 401


# --- Making them ----------------------------------------------------------------------------------------


def test_a_command_makes_a_persons_key_that_expires_and_its_successor_is_of_the_same_person(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row, program = rows.failed(), Program(person("anna", "support"))
    call_command("createapikey", "Agent", "--person", "anna", "--verb", "look")
    program.key = capsys.readouterr().out.splitlines()[-1]
    assert ids(program.get("workflows")) == [row.pk]
    made = ApiKey.objects.get(name="Agent")
    assert made.bounds == "look; as anna; 5 a second"
    assert made.expires_at
    assert timedelta(days=89) < made.expires_at - timezone.now() <= timedelta(days=90)
    program.key = api_keys.rotate(made)
    assert ids(program.get("workflows")) == [row.pk]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["--person", "nobody"], "There is no user nobody"),
        (["--person", "gone"], "may not sign in"),
        (["--person", "anna", "--tenant", "north"], "--tenant does not go with --person"),
        (["--person", "anna", "--verb", "submit"], "and not submit"),
        (["--verb", "look"], "Only the key of a person may look"),
    ],
)
def test_a_command_says_why_it_makes_no_key(arguments: list[str], refusal: str) -> None:
    person("anna", "support")
    person("gone", "support", is_active=False)
    with pytest.raises(CommandError, match=refusal):
        call_command("createapikey", "Agent", *arguments)
    assert not ApiKey.objects.exists()
