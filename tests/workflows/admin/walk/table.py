"""WHO MAY WHAT: every URL of the console, and what everybody gets there by GET and by POST.

The columns are the groups, in the order of `scene.ROLES`:

    R superuser · S support · L support lead · A approver · E engineer · O operations · U auditor
    M user administrator · G staff without a group · C a user who is not staff · N nobody

    p  a page           A  it is done: what is stored has changed, and a page follows
    -  refused (403)    >  sent to another page; in words, if it was refused: nothing has changed
    0  not there (404)  s  sent to the sign-in
    x  not by this method (405)

A POST sends the form that would do it (`FORMS`), with all that it asks for; where there is none, an empty one. What
stands after the name of a URL is the row, by its name in `scene.Scene`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from tests.workflows.admin.walk.scene import CANARY, PASSWORD, ROLES, Scene
from workflows import operations
from workflows.features.cases.operations import acknowledged, asking, handed
from workflows.features.pauses.operations import seen_of
from workflows.models import Confirmation, Correction, Effect, ManualTask, Pause, Workflow

#                                                       GET               POST
#                                                       R SLAEOU M G CN   R SLAEOU M G CN
TABLE = r"""
index                                                  | p pppppp p p ss | p pppppp p p ss
find                                                   | p pppppp - - ss | A AAAAAA - - ss
help                                                   | p pppppp p p ss | x xxxxxx x x ss
needs_a_person                                         | p pppppp - - ss | x xxxxxx x x ss
failures                                               | p pppppp - - ss | x xxxxxx x x ss
left_undone                                            | p pppppp - - ss | A AA-A-- - - ss
audit                                                  | p -----p - - ss | x xxxxxx x x ss
audit_export                                           | x xxxxxx x x ss | p -----p - - ss
incident                                               | 0 000000 - - ss | x xxxxxx x x ss
saved_views                                            | p pppppp - - ss | A AAAAAA - - ss
export_workflows                                       | x xxxxxx x x ss | p -p-p-p - - ss
incident_note                                          | 0 00-0-- - - ss | 0 00-0-- - - ss
assign_failures                                        | 0 00-0-- - - ss | 0 00-0-- - - ss
login                                                  | > >>>>>> > > pp | A AAAAAA A A pp
logout                                                 | x xxxxxx x x >> | p pppppp p p >s
session                                                | p pppppp p p ps | p pppppp p p ps
mail                                                   | p pppppp p p ss | A AAAAAA A A ss
deputies                                               | p pppppp p p ss | A AAAAAA A A ss
sessions                                               | p pppppp p p ss | A AAAAAA A A ss
password_change                                        | p pppppp p p ss | A AAAAAA A A ss
password_change_done                                   | p pppppp p p ss | x xxxxxx x x ss
app_list app                                           | p pppppp 0 0 ss | p pppppp 0 0 ss
autocomplete                                           | - ------ - - ss | x xxxxxx x x ss
jsi18n                                                 | p pppppp p p ss | x xxxxxx x x ss
(?P<url>.*)$                                           | 0 000000 0 0 ss | 0 000000 0 0 ss

workflows_workflow_changelist                          | p pppppp - - ss | A AApApp - - ss
workflows_workflow_change failed                       | p pppppp - - ss | - ------ - - ss
workflows_workflow_retry failed                        | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_retry cancelled                     | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_run_now retrying                    | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_cancel retrying                     | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_follow_up given-up                  | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_acknowledge failed                  | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_acknowledge given-up                | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_note failed                         | p ppppp- - - ss | A AAAAA- - - ss
workflows_workflow_ask_lead failed                     | p ppppp- - - ss | A AAAAA- - - ss
workflows_workflow_lead_has_seen lead-asked            | p -p---- - - ss | A -A---- - - ss
workflows_workflow_not_dealt_with acknowledged         | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_hand_to_team failed                 | p ppppp- - - ss | A AAAAA- - - ss
workflows_workflow_team_has_seen handed                | p >p>>>- - - ss | A >A>>>- - - ss
workflows_workflow_pause retrying                      | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_resume stopped                      | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_not_a_duplicate duplicate           | p >p-p-- - - ss | A >A-A-- - - ss
workflows_workflow_reveal submission                   | p -p---- - - ss | p -p---- - - ss
workflows_workflow_correct failed                      | > -p-p-- - - ss | > -A-A-- - - ss
workflows_workflow_approve_correction to-correct       | > -p-p-- - - ss | > -A-A-- - - ss
workflows_workflow_close_correction to-correct         | p -p-p-- - - ss | A -A-A-- - - ss
workflows_workflow_confirm_retry to-confirm            | p >p-p-- - - ss | A >A-A-- - - ss
workflows_workflow_do_not_confirm_retry to-confirm     | p pp-p-- - - ss | A AA-A-- - - ss
workflows_workflow_by_hand not-made                    | p -p-p>- - - ss | A -A-A>- - - ss
workflows_workflow_confirm_by_hand to-confirm-by-hand  | p -p-p>- - - ss | A -A-A>- - - ss
workflows_workflow_do_not_confirm_by_hand to-confirm-by-hand | p -p-pp- - - ss | A -A-AA- - - ss
workflows_workflow_not_by_hand made-by-hand            | p -p-pp- - - ss | A -A-AA- - - ss
workflows_workflow_say_whether looked-up               | p -p-pp- - - ss | A -A-AA- - - ss
workflows_workflow_review_alone alone                  | p -p-p-p - - ss | A -A-A-A - - ss
workflows_workflow_place_hold settled                  | p -p---p - - ss | A -A---A - - ss
workflows_workflow_ask_erasure settled                 | p -p---- - - ss | A -A---- - - ss
workflows_workflow_history failed                      | p pppppp - - ss | p pppppp - - ss

workflows_manualtask_changelist                        | p pppppp - - ss | A -A---- - - ss
workflows_manualtask_change anybodys                   | p pppppp - - ss | - ------ - - ss
workflows_manualtask_change of-own-team                | p pppppp - - ss | - ------ - - ss
workflows_manualtask_change of-other-team              | p pppppp - - ss | - ------ - - ss
workflows_manualtask_change question                   | p pppppp - - ss | - ------ - - ss
workflows_manualtask_confirm to-confirm-answer         | p -p>pp- - - ss | A -A>AA- - - ss
workflows_manualtask_do_not_confirm to-confirm-answer  | p -p>pp- - - ss | A -A>AA- - - ss
workflows_manualtask_decide anybodys                   | x xxxxxx x x ss | A --A--- - - ss
workflows_manualtask_decide of-own-team                | x xxxxxx x x ss | A --A--- - - ss
workflows_manualtask_decide of-other-team              | x xxxxxx x x ss | A --p--- - - ss
workflows_manualtask_decide question                   | x xxxxxx x x ss | A -ApAA- - - ss
workflows_manualtask_decide claimed                    | x xxxxxx x x ss | A --A--- - - ss
workflows_manualtask_decide claimed-by-lead            | x xxxxxx x x ss | p -pppp- - - ss
workflows_manualtask_decide expired                    | x xxxxxx x x ss | p --p--- - - ss
workflows_manualtask_claim anybodys                    | x xxxxxx x x ss | A --A--- - - ss
workflows_manualtask_claim of-own-team                 | x xxxxxx x x ss | A --A--- - - ss
workflows_manualtask_claim of-other-team               | x xxxxxx x x ss | A -->--- - - ss
workflows_manualtask_claim question                    | x xxxxxx x x ss | A -A>AA- - - ss
workflows_manualtask_release claimed                   | x xxxxxx x x ss | A -AAAA- - - ss
workflows_manualtask_release claimed-by-lead           | x xxxxxx x x ss | A -A>>>- - - ss
workflows_manualtask_assign anybodys                   | p -pppp- - - ss | A -AA>>- - - ss
workflows_manualtask_assign of-own-team                | p -pppp- - - ss | A -AA>>- - - ss
workflows_manualtask_assign of-other-team              | p -pppp- - - ss | A -A>>>- - - ss
workflows_manualtask_assign question                   | p -pppp- - - ss | A -A>AA- - - ss
workflows_manualtask_assign claimed                    | p -pppp- - - ss | A -AA>>- - - ss
workflows_manualtask_assign claimed-by-lead            | p -pppp- - - ss | A -A>>>- - - ss
workflows_manualtask_ask_lead anybodys                 | p ppppp- - - ss | A AAAAA- - - ss
workflows_manualtask_take_back answered                | p -p>pp- - - ss | A -A>AA- - - ss
workflows_manualtask_undo answered                     | x xxxxxx x x ss | > ->>>>- - - ss
workflows_manualtask_history anybodys                  | p pppppp - - ss | p pppppp - - ss

workflows_service_changelist                           | p pp-p-p - - ss | - ------ - - ss
workflows_service_change service                       | p pp-p-p - - ss | - ------ - - ss
workflows_service_hold service                         | p ---p-- - - ss | A ---A-- - - ss
workflows_service_try_now held-service                 | p ---p-- - - ss | A ---A-- - - ss
workflows_service_let_fail cause                       | p -p-p-- - - ss | A -A-A-- - - ss
workflows_service_history service                      | p pp-p-p - - ss | p pp-p-p - - ss

workflows_pace_changelist                              | p pp-p-p - - ss | - ------ - - ss
workflows_pace_change slow-queue                       | p pp-p-p - - ss | - ------ - - ss
workflows_pace_hold slow-queue                         | p ---p-- - - ss | A ---A-- - - ss
workflows_pace_release slow-queue                      | p ---p-- - - ss | A ---A-- - - ss
workflows_pace_set_pace slow-queue                     | p ---p-- - - ss | A ---A-- - - ss
workflows_pace_set_cap slow-queue                      | p ---p-- - - ss | A ---A-- - - ss
workflows_pace_history slow-queue                      | p pp-p-p - - ss | p pp-p-p - - ss

workflows_workerprocess_changelist                     | p pp-p-- - - ss | p pp-p-- - - ss
workflows_workerprocess_change worker                  | p pp-p-- - - ss | - ------ - - ss
workflows_workerprocess_history worker                 | p pp-p-- - - ss | p pp-p-- - - ss

workflows_chore_changelist                             | p pp-p-- - - ss | p pp-p-- - - ss
workflows_chore_change chore                           | p pp-p-- - - ss | - ------ - - ss
workflows_chore_go_on chore                            | p ---p-- - - ss | A ---A-- - - ss
workflows_chore_history chore                          | p pp-p-- - - ss | p pp-p-- - - ss

workflows_bulkoperation_changelist                     | p pp-p-p - - ss | p pp-p-p - - ss
workflows_bulkoperation_change running                 | p pp-p-p - - ss | - ------ - - ss
workflows_bulkoperation_start draft                    | p pp-p-- - - ss | A AA-A-- - - ss
workflows_bulkoperation_approve asked                  | p >p-p-- - - ss | A >A-A-- - - ss
workflows_bulkoperation_pause running                  | p pp-p-- - - ss | A AA-A-- - - ss
workflows_bulkoperation_resume paused                  | p pp-p-- - - ss | A AA-A-- - - ss
workflows_bulkoperation_stop running                   | p pp-p-- - - ss | A AA-A-- - - ss
workflows_bulkoperation_history running                | p pp-p-p - - ss | p pp-p-p - - ss

workflows_undeliveredmessage_changelist                | p ---p-p - - ss | p ---p-p - - ss
workflows_undeliveredmessage_change message            | p ---p-p - - ss | - ------ - - ss
workflows_undeliveredmessage_redeliver message         | p ---p-- - - ss | > --->-- - - ss
workflows_undeliveredmessage_discard message           | p ---p-- - - ss | A ---A-- - - ss
workflows_undeliveredmessage_history message           | p ---p-p - - ss | p ---p-p - - ss

workflows_outboxevent_changelist                       | p ---p-p - - ss | p ---p-p - - ss
workflows_outboxevent_change event                     | p ---p-p - - ss | - ------ - - ss
workflows_outboxevent_redeliver event                  | p ---p-- - - ss | A ---A-- - - ss
workflows_outboxevent_discard event                    | p ---p-- - - ss | A ---A-- - - ss
workflows_outboxevent_history event                    | p ---p-p - - ss | p ---p-p - - ss

workflows_hold_changelist                              | p -p---p - - ss | p -p---p - - ss
workflows_hold_change hold                             | p -p---p - - ss | - ------ - - ss
workflows_hold_extend hold                             | p -p---p - - ss | A -A---A - - ss
workflows_hold_lift hold                               | p -p---p - - ss | A -A---A - - ss
workflows_hold_history hold                            | p -p---p - - ss | p -p---p - - ss

workflows_erasure_changelist                           | p -p---- - - ss | p -p---- - - ss
workflows_erasure_change erasure                       | p -p---- - - ss | - ------ - - ss
workflows_erasure_approve erasure                      | p -p---- - - ss | A -A---- - - ss
workflows_erasure_refuse erasure                       | p -p---- - - ss | A -A---- - - ss
workflows_erasure_history erasure                      | p -p---- - - ss | p -p---- - - ss

workflows_proposal_changelist                          | p pppppp - - ss | p pppppp - - ss
workflows_proposal_change proposal                     | p pppppp - - ss | - ------ - - ss
workflows_proposal_approve proposal                    | p pp>p>- - - ss | A AA>A>- - - ss
workflows_proposal_refuse proposal                     | p pp>p>- - - ss | A AA>A>- - - ss
workflows_proposal_history proposal                    | p pppppp - - ss | p pppppp - - ss

workflows_apikey_changelist                            | p ---p-p - - ss | p ---p-p - - ss
workflows_apikey_change key                            | p ---p-p - - ss | - ------ - - ss
workflows_apikey_revoke key                            | p ---p-- - - ss | A ---A-- - - ss
workflows_apikey_history key                           | p ---p-p - - ss | p ---p-p - - ss

auth_user_changelist                                   | p ------ p - ss | p ------ p - ss
auth_user_add                                          | p ------ p - ss | A ------ A - ss
auth_user_change colleague                             | p ------ p - ss | A ------ A - ss
auth_user_change lead                                  | p ------ p - ss | A ------ - - ss
auth_user_change boss                                  | p ------ > - ss | A ------ > - ss
auth_user_password_change colleague                    | p ------ p - ss | A ------ A - ss
auth_user_password_change lead                         | p ------ - - ss | A ------ - - ss
auth_user_password_change boss                         | p ------ 0 - ss | A ------ 0 - ss
auth_user_second_factor colleague                      | p ------ p - ss | A ------ A - ss
auth_user_second_factor lead                           | p ------ - - ss | A ------ - - ss
auth_user_second_factor boss                           | p ------ - - ss | A ------ - - ss
auth_user_delete colleague                             | p ------ p - ss | A ------ A - ss
auth_user_delete lead                                  | p ------ - - ss | p ------ - - ss
auth_user_delete boss                                  | p ------ > - ss | p ------ > - ss
auth_user_history colleague                            | p ------ p - ss | p ------ p - ss
auth/user/<path:object_id>/ colleague                  | > >>>>>> > > ss | > >>>>>> > > ss
auth_group_changelist                                  | p ------ p - ss | p ------ p - ss
auth_group_add                                         | p ------ p - ss | A ------ A - ss
auth_group_change reception                            | p ------ p - ss | A ------ A - ss
auth_group_change engineers                            | p ------ p - ss | A ------ - - ss
auth_group_delete reception                            | p ------ p - ss | A ------ A - ss
auth_group_delete engineers                            | p ------ - - ss | A ------ - - ss
auth_group_history reception                           | p ------ p - ss | p ------ p - ss
auth/group/<path:object_id>/ reception                 | > >>>>>> > > ss | > >>>>>> > > ss
"""
# Of each model, with one of its rows: nobody adds or deletes a row by hand.
OF_EACH_MODEL = r"""
workflows_{0}_add                                      | - ------ - - ss | - ------ - - ss
workflows_{0}_delete {1}                               | - ------ - - ss | - ------ - - ss
workflows/{0}/<path:object_id>/ {1}                    | > >>>>>> > > ss | > >>>>>> > > ss
"""
MODELS = {
    "workflow": "failed",
    "manualtask": "anybodys",
    "service": "service",
    "pace": "slow-queue",
    "workerprocess": "worker",
    "chore": "chore",
    "bulkoperation": "running",
    "undeliveredmessage": "message",
    "outboxevent": "event",
    "hold": "hold",
    "erasure": "erasure",
    "apikey": "key",
    "proposal": "proposal",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `get` and `post` are the answers by role."""

    url: str
    row: str
    get: dict[str, str]
    post: dict[str, str]

    @property
    def label(self) -> str:
        return f"{self.url} {self.row}".strip()


def lines() -> Iterator[Line]:
    table = [TABLE, *(OF_EACH_MODEL.format(*each) for each in MODELS.items())]
    for line in filter(None, "".join(table).splitlines()):
        label, get, post = (part.strip() for part in line.split("|"))
        url, _, row = label.partition(" ")
        yield Line(
            url, row.strip(), *(dict(zip(ROLES.values(), part.replace(" ", ""), strict=True)) for part in (get, post))
        )


# --- What is sent -------------------------------------------------------------------------------

NEW_PASSWORD = "a horse of another colour"
REASON = {"reason": "Asked for by phone."}
USER = {"username": "eve", "usable_password": "true", "password1": NEW_PASSWORD, "password2": NEW_PASSWORD}
CHANGED_USER = {
    "username": "colleague",
    "first_name": "Col",
    "date_joined_0": "2026-01-01",
    "date_joined_1": "00:00:00",
}


def _for_an_hour(scene: Scene) -> dict[str, Any]:
    return {"how_long": "60", **REASON}


def _away_for_a_day(scene: Scene) -> dict[str, Any]:
    you = User.objects.filter(username="you").values_list("pk", flat=True).first()
    until = f"{timezone.now() + timedelta(days=1):%Y-%m-%dT%H:%M}"
    return {"absent": you or "", "deputy": scene.boss.pk, "until": until}


def _to_the_boss(scene: Scene, row: str) -> dict[str, Any]:
    """Assign it, having seen whose it is."""
    assignee = ManualTask.objects.values_list("assignee", flat=True).get(pk=scene.args[row])
    return {"to": str(scene.boss.pk), "seen": [assignee] if assignee else [], **REASON}


def _what_is_left(scene: Scene, row: str) -> dict[str, Any]:
    """Acknowledge it, having seen its failures."""
    return {"seen": operations.failures_left(Workflow.objects.get(pk=scene.args[row])), **REASON}


def _what_was_acknowledged(scene: Scene) -> dict[str, Any]:
    return {"seen": acknowledged(Workflow.objects.get(pk=scene.args["acknowledged"])), **REASON}


def _correct(scene: Scene) -> dict[str, Any]:
    return {"note": "Fragile!", "seen": operations.ended_at(Workflow.objects.get(pk=scene.args["failed"])), **REASON}


def _what_was_asked_for(scene: Scene) -> dict[str, Any]:
    return {"note": CANARY, "seen": [Correction.objects.get(workflow=scene.args["to-correct"]).pk], **REASON}


def _what_was_said(scene: Scene, row: str) -> dict[str, Any]:
    about = {"workflow": scene.args[row]} if row != "to-confirm-answer" else {"task": scene.args[row]}
    return {"seen": [Confirmation.objects.get(**about).pk], **REASON}


def _made_by_hand(scene: Scene) -> dict[str, Any]:
    seen = operations.ended_at(Workflow.objects.get(pk=scene.args["not-made"]))
    return {"reference": "en-77", "answer-enrollment_id": "en-77", "seen": seen, **REASON}


def _call_by_hand(scene: Scene) -> dict[str, Any]:
    return {"seen": [Effect.objects.get(workflow=scene.args["made-by-hand"]).pk], **REASON}


def _call_in_doubt(scene: Scene) -> dict[str, Any]:
    return {"seen": [Effect.objects.get(workflow=scene.args["looked-up"]).call_number], **REASON}


def _next_year() -> dict[str, Any]:
    return {"until": f"{timezone.now() + timedelta(days=365):%Y-%m-%d}", **REASON}


def _retry_ticked(scene: Scene) -> dict[str, Any]:
    return {"action": "retry", "_selected_action": [scene.args["failed"]]}


# By the URL's name; with a row, if the forms of rows differ. Fields, or what makes them of the scene.
FORMS: dict[str, dict[str, Any] | Callable[[Scene], dict[str, Any]]] = {
    "find": {"q": "order-7"},
    "left_undone": {"workflow_type": "parcel", "step": "thank", "code": "gone"},
    "login": {"username": "you", "password": PASSWORD},
    "mail": {"mail": "off"},
    "deputies": _away_for_a_day,
    "saved_views": {"name": "Mine", "query": "state=failed"},
    "sessions": {"session": "others"},
    "password_change": {"old_password": PASSWORD, "new_password1": NEW_PASSWORD, "new_password2": NEW_PASSWORD},
    "workflows_workflow_changelist": _retry_ticked,
    "workflows_workflow_retry": {"why": "other", **REASON},
    "workflows_workflow_run_now": REASON,
    "workflows_workflow_cancel": REASON,
    "workflows_workflow_note": REASON,
    "workflows_workflow_ask_lead": REASON,
    "workflows_workflow_lead_has_seen": lambda scene: {"seen": [asking().get().pk], **REASON},
    "workflows_workflow_hand_to_team": {"team": "support lead", **REASON},
    "workflows_workflow_team_has_seen": lambda scene: {"seen": [handed().get().pk], **REASON},
    "workflows_workflow_pause": _for_an_hour,
    "workflows_workflow_resume": lambda scene: {"seen": seen_of(Pause.objects.get()), **REASON},
    "workflows_workflow_not_dealt_with": _what_was_acknowledged,
    "workflows_workflow_not_a_duplicate": REASON,
    "workflows_workflow_correct": _correct,
    "workflows_workflow_approve_correction": _what_was_asked_for,
    "workflows_workflow_close_correction": _what_was_asked_for,
    **{
        f"workflows_{url}": (lambda scene, row=row: _what_was_said(scene, row))
        for url, row in {
            "workflow_confirm_retry": "to-confirm",
            "workflow_do_not_confirm_retry": "to-confirm",
            "workflow_confirm_by_hand": "to-confirm-by-hand",
            "workflow_do_not_confirm_by_hand": "to-confirm-by-hand",
            "workflow_review_alone": "alone",
            "manualtask_confirm": "to-confirm-answer",
            "manualtask_do_not_confirm": "to-confirm-answer",
        }.items()
    },
    **{
        f"workflows_workflow_acknowledge {row}": (lambda scene, row=row: _what_is_left(scene, row))
        for row in ("failed", "given-up")
    },
    "workflows_workflow_by_hand": _made_by_hand,
    "workflows_workflow_not_by_hand": _call_by_hand,
    "workflows_workflow_say_whether": _call_in_doubt,
    "workflows_workflow_reveal": {"fields_asked": ["patient.phone"], **REASON},
    "workflows_workflow_follow_up": {"step": "thank", **REASON},
    "workflows_manualtask_decide": {"decision": "approve", **REASON},
    "workflows_manualtask_take_back": REASON,
    "workflows_manualtask_ask_lead": REASON,
    "workflows_manualtask_changelist": lambda scene: {"task": [scene.args["anybodys"]]},
    **{
        f"workflows_manualtask_assign {row}": (lambda scene, row=row: _to_the_boss(scene, row))
        for row in ("anybodys", "of-own-team", "of-other-team", "question", "claimed", "claimed-by-lead")
    },
    "workflows_apikey_revoke": REASON,
    "workflows_proposal_approve": lambda scene: {"seen": [scene.args["proposal"]]},
    "workflows_proposal_refuse": lambda scene: {"seen": [scene.args["proposal"]], **REASON},
    "workflows_chore_go_on": REASON,
    "workflows_undeliveredmessage_redeliver": REASON,
    "workflows_undeliveredmessage_discard": REASON,
    "workflows_outboxevent_redeliver": REASON,
    "workflows_outboxevent_discard": REASON,
    "workflows_workflow_place_hold": lambda scene: _next_year(),
    "workflows_workflow_ask_erasure": REASON,
    "workflows_hold_extend": lambda scene: _next_year(),
    "workflows_hold_lift": REASON,
    "workflows_bulkoperation_start": {"pace": "5", **REASON},
    **{f"workflows_bulkoperation_{verb}": REASON for verb in ("approve", "pause", "resume", "stop")},
    "workflows_service_hold": _for_an_hour,
    "workflows_service_try_now": REASON,
    "workflows_service_let_fail": {**REASON, "decides": "1"},
    "workflows_pace_hold": _for_an_hour,
    "workflows_pace_release": REASON,
    "workflows_pace_set_cap": {"at_once": "5", **REASON},
    "workflows_pace_set_pace": {"per_second": "5", **REASON},
    "auth_user_add": USER,
    **{f"auth_user_change {name}": CHANGED_USER | {"username": name} for name in ("colleague", "lead", "boss")},
    "auth_user_password_change": {**USER, "set-password": "1"},
    "auth_user_delete": {"post": "yes"},
    "auth_user_second_factor": {"sure": "on"},
    "auth_group_add": {"name": "night shift"},
    "auth_group_change reception": {"name": "reception desk"},
    "auth_group_change engineers": {"name": "engineer"},
    "auth_group_delete": {"post": "yes"},
    # What no page offers, and Django would take: rows added, changed and deleted by hand.
    **{
        f"workflows_{model}_{page}": {"post": "yes", "name": "mine", "status": "COMPLETE", "state": "approved"}
        for model in MODELS
        for page in ("add", "change", "delete")
    },
}


def form_of(line: Line, scene: Scene) -> dict[str, Any]:
    form = FORMS.get(line.label, FORMS.get(line.url, {}))
    return form(scene) if callable(form) else form
