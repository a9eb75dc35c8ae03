"""HELP: what the words on the pages mean. docs/console.md has the same tables, and a test compares them."""

from __future__ import annotations

from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.views.decorators.http import require_safe

from workflows.wording import of_person

# What a workflow's page says, what that means, and what to do.
STATES = (
    ("Queued", "it waits for a worker; its turn comes in a moment", "nothing"),
    ("Running", "a worker runs its steps", "nothing"),
    (
        "Retrying",
        "something failed that may pass; the next try has a time",
        "nothing, or “Run now” if you know that it is fixed",
    ),
    (
        "Waiting",
        "it waits for a person, a message, or a time; the sentence says which",
        "decide, if it is yours",
    ),
    (
        "Parked",
        "a service is down, or many fail at a step and somebody has to mend it; it goes on by itself",
        "nothing",
    ),
    (
        "Reversing",
        "it failed or was cancelled; its calls are reversed, newest first, perhaps after a person has decided on that",
        "nothing, unless it asks for a person",
    ),
    ("Complete", "all steps are done", "nothing; “Run again”, or “Acknowledge”, for a step that was given up"),
    (
        "Failed",
        "it has ended; the sentence says why",
        "tell the patient; “Retry” if the cause is fixed, else “Acknowledge”",
    ),
    ("Cancelled", "somebody ended it; the history says who, and why", "nothing"),
    (
        "A second submission",
        "the patient has sent it twice; it waits for the first one, to which there is a link",
        "nothing; a support lead: “Not a duplicate”, if both are meant",
    ),
    (
        "Possible duplicate",
        "another submission has the same address and program, and this one differs, is perhaps of another person, or "
        "the other one failed with a charge; the page names the fields that differ. Nothing is charged meanwhile",
        "ask the patient within the hour, then decide the task: “Carry it out as well”, or “Do not carry it out”",
    ),
    (
        "Ended as a duplicate",
        "the first submission is complete, and this one has called nothing",
        "nothing, unless the page says that somebody has to look; a support lead: “Not a duplicate”, if it is meant",
    ),
)

WORDS = (
    (
        "Unclear call",
        "A call was made, and its answer never came. A person looks in the service whether it happened. A lead can say "
        "so at once.",
    ),
    ("Failed reversal", "A refund, or another reversal, failed three times. A person does it by hand, and says so."),
    ("Money held", "Money was taken, or may have been, and has not been given back."),
    ("Paused", "Somebody has stopped it until a time, or the engine has rescheduled it. The page says who and why."),
    ("Overdue", "The time by which it was to be decided, or to come, is over. It still waits."),
    ("For you", "What you may decide, or were asked to see to; a link below it leads to what is for others."),
    ("Attempt", "One time that a worker takes up the workflow. A call on record is not made again by the next one."),
    ("Step", "One thing that is done for the patient. Steps of a kind are shown together, as a phase."),
    ("Left undone", "A step that may fail did so, and the workflow completed without it."),
    ("Acknowledge", "Say that you have seen a failure and that nothing is left to do. It leaves the lists."),
    ("Run now", "Take it up at once instead of at the next try. Nothing is done twice."),
    ("Retry", "Start a failed workflow again. What is on record as done is not done again."),
    (
        "Reveal",
        "Show values of a patient that are masked, for a purpose. Your name and the purpose are on record first.",
    ),
    ("Audit", "Who did what, who looked at whom, and who revealed what. Auditors read it: ask one of them."),
    ("Pause this one", "Nothing wakes it until somebody resumes it. At the end that you name it is overdue."),
    ("Deputy", "A colleague who is asked in place of somebody who is away. The history names both."),
    ("Proposal", "What a program asks for with somebody's API key. Another person approves it, or nothing is done."),
    ("Hold", "Nothing new starts in a queue, or calls a service, until a time that you name."),
)


@require_safe
def view(request: HttpRequest, *, site: AdminSite) -> HttpResponse:
    states, words = ([tuple(map(of_person, each)) for each in rows] for rows in (STATES, WORDS))
    context = {**site.each_context(request), "title": "What the words mean", "states": states, "words": words}
    return TemplateResponse(request, "admin/workflows/help.html", context)
