"""A walk through the console as everybody, once for each role; all that is promised of every page is asked of it.

Who gets what, by GET and by POST, stands in `table`; what a form may do that nobody has touched, in `untouched`. The
superuser, who has every link and every form, follows them all as well; of the others the links are looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.http import SimpleCookie
from django.test import Client
from django.urls import resolve

from staff import step_up
from tests.workflows.admin.conftest import crawl, links
from tests.workflows.admin.test_navigation import LABELS, bar
from tests.workflows.admin.walk.forms import untouched
from tests.workflows.admin.walk.kept import leaks
from tests.workflows.admin.walk.scene import ASKED, CANARIES, FACT, ROLES, TASKS, WORKFLOWS, Scene
from tests.workflows.admin.walk.stored import Watch, undone
from tests.workflows.admin.walk.table import FORMS, form_of, lines
from tests.workflows.admin.walk.untouched import FORMS_OF_ALL, NEEDS_NEITHER, ONLY_TRIED, what_untouched_forms_do
from tests.workflows.admin.walk.urls import address, every_url

LETTERS = {200: "p", 403: "-", 404: "0", 405: "x", 401: "s"}
# Whoever is not staff has no page but the sign-in.
OUTSIDERS = ("a user who is not staff", "nobody")
# The facts that they see, on the pages of tasks: those of what they decide.
FACTS = {
    "superuser": (FACT, ASKED),
    "approver": (FACT,),
    **dict.fromkeys(("support lead", "engineer", "operations"), (ASKED,)),
}
# Whose pages show what those of the table do not.
OTHER_WORKFLOWS = (
    *(*WORKFLOWS, "queued", "running", "waiting", "parked", "parked-on-cause", "duplicate"),
    *("settled", "emptied"),
)
POLICY, OWN_FILES = "Content-Security-Policy", "default-src 'self';"
# The policy lets none of them act.
INLINE = re.compile(r"style=|<style|onclick=|<script>")


@pytest.fixture
def scene(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Scene:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # A walk may take longer than these on a slow machine, and what is rolled back keeps no session alive.
    settings.SESSION_IDLE_SECONDS = settings.SESSION_COOKIE_AGE
    monkeypatch.setattr(step_up, "LASTS", settings.SESSION_COOKIE_AGE)
    return Scene()


@pytest.mark.parametrize("role", ROLES.values())
def test_everybody_is_shown_and_may_do_what_is_promised(scene: Scene, role: str) -> None:
    client = scene.sign_in(role)
    watch = Watch()
    asked_for = {address(line.url, *scene.of(line.row)) for line in lines()}
    if role not in OUTSIDERS:
        asked_for |= {address("workflows_workflow_change", scene.args[row]) for row in OTHER_WORKFLOWS}
        asked_for |= {address("workflows_manualtask_change", scene.args[row]) for row in TASKS}
    answers = {where: client.get(where) for where in sorted(asked_for)}
    pages = {url: each.content.decode() for url, each in answers.items() if each.status_code == 200}
    if role == "superuser":
        pages |= crawl(client, start=pages, known=pages, but=("/admin/jsi18n/",))
    assert watch.changed() == [], "to look at a page changes something"
    names = {
        refused: {name_of(url) for url in answers if (answers[url].status_code == 403) is refused}
        for refused in (True, False)
    }
    shut = names[True] - names[False]
    said = [
        *(f"{url} has no policy" for url, each in answers.items() if OWN_FILES not in each.headers.get(POLICY, "")),
        *(f"{url} {what}" for url, html in pages.items() for what in faults(url, html, role)),
        *(
            f"{url} leads to {link}"
            for url, html in pages.items()
            for link in links(url, html)
            if name_of(link) in shut
        ),
        *wrong_answers(client, scene, role, answers, watch),
        *refused(client, scene, answers, watch),
        *(slips(client, scene, pages, watch) if role == "superuser" else ()),
    ]
    assert not said, f"As {role}:\n" + "\n".join(said)
    everything = "".join(pages.values())
    assert sorted(leaks(everything, CANARIES)) == sorted(FACTS.get(role, ())), "what is shown is found"


def name_of(url: str) -> str | None:
    return resolve(url.partition("?")[0]).url_name


def faults(url: str, html: str, role: str) -> Iterator[str]:
    """What stands on a page, or is missing, against what is promised of every page."""
    allowed = FACTS.get(role, ()) if "/manualtask/" in url else []
    if shown := leaks(html, {*CANARIES} - {*allowed}):
        yield f"shows {shown}"
    if "<body" not in html:
        return
    if inline := INLINE.findall(html):
        yield f"has {inline}, which the policy forbids"
    labels = [] if role in OUTSIDERS else LABELS[role]
    if list(bar(html)) != labels:
        yield f"has the bar {list(bar(html))}"
    boxes = html.count("data-find"), html.count('method="post" action="/admin/find/"')
    if boxes not in ([(1, 1)] if labels else [(0, 0)]) and url != "/admin/find/":
        yield f"has the boxes to find something {boxes}"


def wrong_answers(client: Client, scene: Scene, role: str, answers: dict[str, Any], watch: Watch) -> Iterator[str]:
    """Where a GET, or the POST that would do it, is not answered as the table says."""
    cookies = client.cookies.output(header="")
    for line in lines():
        where = address(line.url, *scene.of(line.row))
        with undone():
            client.cookies = SimpleCookie(cookies)
            posted = client.post(where, form_of(line, scene))
            found = letter(answers[where], []), letter(posted, watch.changed())
        if found != (line.get[role], line.post[role]):
            yield f"{line.label}: {found}, where the table says {line.get[role], line.post[role]}"
    client.cookies = SimpleCookie(cookies)


def refused(client: Client, scene: Scene, answers: dict[str, Any], watch: Watch) -> Iterator[str]:
    """What a page offers, and what is then refused, or does nothing, with all that its form asks for."""
    cookies = client.cookies.output(header="")
    for where, answer in answers.items():
        for verb, url in (answer.context or {}).get("verbs", ()) if where.endswith("/change/") else ():
            name = f"{name_of(url)}"
            with undone():
                client.cookies = SimpleCookie(cookies)
                page = client.get(url)
                sent = [each for each in untouched(url, page.content.decode()) if each.url == url]
                if name in ONLY_TRIED:
                    continue
                if not sent:
                    yield f"{where} offers {verb.label}, and its page says {told(page)}"
                    continue
                posted = client.post(url, {**filled(name, scene), **with_lists(sent[0].fields)})
                if not (watch.changed() or verb.shows):
                    yield f"{where} offers {verb.label}, and that does nothing: {told(posted)}"
    client.cookies = SimpleCookie(cookies)


def filled(name: str, scene: Scene) -> dict[str, Any]:
    form = next((form for label, form in FORMS.items() if label.partition(" ")[0] == name), {})
    return form(scene) if callable(form) else form


def with_lists(fields: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """The fields that the page has filled itself: what it was made of, and what a colleague has typed."""
    found: dict[str, list[str]] = {}
    for name, value in fields:
        if value:
            found.setdefault(name, []).append(value)
    return found


def told(response: Any) -> list[str]:
    return [
        *map(str, get_messages(response.wsgi_request)),
        *getattr((response.context or {}).get("form"), "errors", []),
    ]


def letter(response: Any, changed: list[str]) -> str:
    if changed:
        assert response.status_code in (200, 302), f"{response.status_code}, and yet {changed} changed"
        return "A"
    if response.status_code in (301, 302):
        return "s" if response["Location"].startswith("/admin/login/") else ">"
    return LETTERS.get(response.status_code, str(response.status_code))


def slips(client: Client, scene: Scene, pages: dict[str, str], watch: Watch) -> Iterator[str]:
    """The forms that nobody has touched, and that change something all the same."""
    client.handler.enforce_csrf_checks = True  # a form has its token
    done = what_untouched_forms_do(client, scene, {url: pages[url] for url in pages if "?" not in url}, watch)
    for name, tables in done.items():
        if tables and not NEEDS_NEITHER.keys() & set(name):
            yield (
                f"{name[0]} changes {tables}, sent as its page came. Let the form ask for a decision or a reason; or, "
                "if it needs neither, say why in NEEDS_NEITHER."
            )
    acted = {each for name, tables in done.items() if tables for each in name}
    yield from (f"{name} does nothing: take it out" for name in NEEDS_NEITHER.keys() - acted)
    yield from (f"{form} is on no page" for form in FORMS_OF_ALL - {name.partition(":")[0] for _, name in done})


def test_a_post_without_its_token_is_refused_everywhere(scene: Scene) -> None:
    client, watch, taken = scene.sign_in("superuser"), Watch(), []
    client.handler.enforce_csrf_checks = True
    for line in lines():
        with undone():
            status = client.post(address(line.url, *scene.of(line.row)), form_of(line, scene)).status_code
            if status not in (403, 405) or watch.changed():
                taken.append(f"{line.label}: {status}")
    assert taken == []


def test_the_table_has_every_url_and_every_form_is_sent() -> None:
    known = {line.url for line in lines()}
    missing, gone = sorted(every_url().keys() - known), sorted(known - every_url().keys())
    assert not missing, (
        f"Say what everybody gets at {', '.join(missing)}: add a line for it to TABLE in {__package__}.table, with the "
        "row that it is about, if it is about one (Scene.args), and the form that its POST asks for (FORMS). The walk "
        "then says which letters were found: judge each of them."
    )
    assert not gone, f"There is no {', '.join(gone)} any more: take it out of the table."
    assert not FORMS.keys() - {line.label for line in lines()} - known
