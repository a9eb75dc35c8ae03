from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import models
from django.db.models import Case, Exists, ExpressionWrapper, F, OuterRef, Q, Value, When
from django.db.models.functions import Coalesce, Now

from workflows.compiled import Compiled, compiled
from workflows.models.clock import ClockTimestamp
from workflows.models.deputy import away, count_as_one, deputy_of, represented_by
from workflows.models.wait import Wait
from workflows.models.workflow import Workflow

if TYPE_CHECKING:
    from django.contrib.auth.models import User

DECIDE = "workflows.decide_manualtask"
# Users who may answer the engine's own questions are in the team `operations`, whatever their groups.
RESOLVE = "workflows.resolve_manualtask"
OPERATIONS = "operations"
ASSIGN = "workflows.assign_manualtask"
# The order of open tasks. A task without a due time is due when it expires.
DUE = Coalesce("due_at", "expires_at")
# No join: Django makes that of an UPDATE a subquery on the task itself, which does not see a decision just made.
_UNDER_WAY = Compiled(lambda: Exists(Workflow.objects.filter(pk=OuterRef("workflow_id"), status="PENDING")))
# Django's users and groups decide who may decide, whatever other backend logs people in.
PERMISSION_BACKEND = "django.contrib.auth.backends.ModelBackend"


@compiled
def has_able_assignee() -> Q:
    """Whether the user who claimed a task can still decide it: active staff, with the permission, in its team.

    While they are away, whether their deputy can, who must not be away, too. If not, the claim does not count;
    otherwise only a superuser could help until the task expires.
    """
    in_team = Q(is_superuser=True) | Q(team="") | Q(groups__name=F("team"))
    return Exists(_assignee_with(DECIDE).filter(in_team)) | Q(Exists(_assignee_with(RESOLVE)), team=OPERATIONS)


def _assignee_with(permission: str) -> models.QuerySet[User]:
    """The task's assignee or their deputy, if active staff with the permission; annotated with the task's `team`."""
    able = get_user_model().objects.with_perm(permission, backend=PERMISSION_BACKEND).filter(is_staff=True)
    team = ExpressionWrapper(OuterRef("team"), output_field=models.CharField())
    holder = Coalesce(deputy_of(OuterRef(OuterRef("assignee"))), OuterRef("assignee"))
    excluded = Case(
        When(Q(four_eyes=True), then=count_as_one(OuterRef("requested_by"), F("pk"), OuterRef("created_at"))),
        default=False,
    )
    four_eyes = ExpressionWrapper(OuterRef("four_eyes"), output_field=models.BooleanField())
    able = able.filter(pk=holder).exclude(pk__in=away()).alias(team=team, four_eyes=four_eyes)
    return able.alias(excluded=excluded).filter(excluded=False)


def able_to_decide(task: ManualTask) -> models.QuerySet[User]:
    """Users who may decide the task: active staff, with the permission, in its team, and not excluded by four eyes."""
    users = get_user_model().objects
    able = users.with_perm(DECIDE, backend=PERMISSION_BACKEND)
    if task.team:
        able = able.filter(Q(is_superuser=True) | Q(pk__in=users.filter(groups__name=task.team).values("pk")))
    theirs = Q(pk__in=able.values("pk"))
    if task.team == OPERATIONS:
        theirs |= Q(pk__in=users.with_perm(RESOLVE, backend=PERMISSION_BACKEND).values("pk"))
    found = users.filter(theirs, is_staff=True)
    if not task.four_eyes:
        return found
    return found.exclude(count_as_one(Value(task.requested_by_id), F("pk"), Value(task.created_at)))


def deciders() -> models.QuerySet[User]:
    """Users who may decide some task: active staff with one of the permissions."""
    users = get_user_model().objects
    with_one = [Q(pk__in=users.with_perm(each, backend=PERMISSION_BACKEND).values("pk")) for each in (DECIDE, RESOLVE)]
    return users.filter(with_one[0] | with_one[1], is_staff=True)


class ManualTaskQuerySet(models.QuerySet["ManualTask"]):
    def by_the_clock(self) -> ManualTaskQuerySet:
        """Annotate each task with `is_over`: whether its deadline has passed, by the clock that set it."""
        over = ExpressionWrapper(Q(expires_at__lte=ClockTimestamp()), output_field=models.BooleanField())
        return self.annotate(is_over=over)  # type: ignore[no-redef]  # the model declares it, for everyone who reads it

    def with_claims(self) -> ManualTaskQuerySet:
        """Annotate each task with `is_held`: whether a user who can still decide it has claimed it; and with
        `stand_in`: the name of the assignee's deputy, if they are away.
        """
        held = ExpressionWrapper(has_able_assignee(), output_field=models.BooleanField())
        stand_in = deputy_of(OuterRef("assignee"), f"deputy__{get_user_model().USERNAME_FIELD}")
        return self.annotate(is_held=held, stand_in=stand_in)  # type: ignore[no-redef]  # as above

    def open(self) -> ManualTaskQuerySet:
        """The tasks to be decided; not those of a finished workflow."""
        return self.filter(_UNDER_WAY, state=ManualTask.State.OPEN)

    def overdue(self) -> ManualTaskQuerySet:
        return self.open().filter(due_at__lte=Now(), due_at__isnull=False)

    def for_members(self, user: User) -> ManualTaskQuerySet:
        """The tasks without a team, and those of a team that `user` is in. A superuser is in every team."""
        if user.is_superuser:
            return self
        theirs = Q(team="") | Q(team__in=user.groups.values("name"))
        return self.filter(theirs | Q(team=OPERATIONS) if user.has_perm(RESOLVE) else theirs)

    def permitted_to(self, user: User) -> ManualTaskQuerySet:
        """All tasks, for a user who may decide them; those of `operations`, for a user with the other permission."""
        return self if user.has_perm(DECIDE) else self.filter(team=OPERATIONS)

    def free(self) -> ManualTaskQuerySet:
        """The tasks without a claim by a user who can still decide them."""
        # Never NOT EXISTS alone: PostgreSQL turns it into an anti-join, and an UPDATE that waited for the row would not
        # see a new claim. Next to an OR it is evaluated again.
        return self.filter(Q(assignee=None) | ~has_able_assignee())

    def free_for(self, user: User) -> ManualTaskQuerySet:
        """The tasks that `user`, or somebody for whom they stand in, has claimed, and those that are free."""
        return self.filter(_held_by(user) | Q(assignee=None) | ~has_able_assignee())

    def held_by(self, user: User) -> ManualTaskQuerySet:
        """The tasks of `user`, and of those for whom they stand in."""
        return self.filter(_held_by(user))

    def taken_from(self, user: User) -> ManualTaskQuerySet:
        """The tasks that another user, who can still decide them, has claimed."""
        return self.filter(has_able_assignee(), assignee__isnull=False).exclude(_held_by(user))

    def for_other_eyes(self, user: User) -> ManualTaskQuerySet:
        """All tasks except those with four eyes that `user`, or who counts as them, requested."""
        return self.exclude(_requested_by(user))

    def requested_by(self, user: User) -> ManualTaskQuerySet:
        """The others."""
        return self.filter(_requested_by(user))


def _held_by(user: User) -> Q:
    return Q(assignee=user) | Q(assignee__in=represented_by(user))


def _requested_by(user: User) -> Q:
    return Q(four_eyes=True) & Q(count_as_one(F("requested_by"), Value(user.pk), F("created_at")))


class ManualTask(models.Model):
    """A question to a person, and the decision. The row decides when a decision races the expiry."""

    class State(models.TextChoices):
        OPEN = "open"
        APPROVED = "approved"
        REJECTED = "rejected"
        EXPIRED = "expired"
        CLOSED = "closed", "No longer asked"
        RETRACTED = "taken_back", "Answer retracted"

    workflow = models.ForeignKey(  # without constraints: see Attempt
        Workflow, on_delete=models.DO_NOTHING, db_constraint=False, related_name="manual_tasks"
    )
    wait = models.OneToOneField(Wait, on_delete=models.DO_NOTHING, db_constraint=False, related_name="manual_task")
    task_type = models.CharField(max_length=100)
    question = models.TextField()
    # What the person needs to decide: [[label, value], ...], because jsonb does not keep the order of an object. May
    # hold patient data; only the task's page shows it.
    facts = models.JSONField(db_default=models.Value([], models.JSONField()))
    state = models.CharField(max_length=10, choices=State, db_default=State.OPEN)
    # Dotted path of the Pydantic model of the answer; empty for a yes or no.
    answer_model = models.CharField(max_length=300, db_default="")
    created_at = models.DateTimeField(db_default=ClockTimestamp())
    due_at = models.DateTimeField(null=True)  # when it should be decided
    expires_at = models.DateTimeField()
    # The outcome when no user decides: expired, approved, rejected.
    on_expiry = models.CharField(max_length=10, db_default="expired")
    team = models.CharField(max_length=150, db_default="")  # name of the group that decides; empty for all
    # The user who has claimed it.
    assignee = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    claimed_at = models.DateTimeField(null=True)
    lead_asked_at = models.DateTimeField(null=True)  # when a support lead was asked to help; empty once it is claimed
    requested_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    four_eyes = models.BooleanField(db_default=False)  # the user who requested it may not decide it
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    reason = models.TextField(db_default="")
    undoable = models.BooleanField(db_default=False)  # a step asked for an approval: no question of the engine's
    held = models.JSONField(null=True)  # what the decision's signal will say, while that is not stored yet

    is_over: bool  # only on rows of `by_the_clock()`
    is_held: bool  # these two only on rows of `with_claims()`
    stand_in: str | None

    objects = ManualTaskQuerySet.as_manager()

    class Meta:
        default_permissions = ("view",)
        permissions = [
            ("decide_manualtask", "Can approve or reject a manual task"),
            ("resolve_manualtask", "Can answer the questions to the team operations"),
            ("assign_manualtask", "Can assign any manual task to whoever may decide it"),
        ]
        constraints = [
            models.CheckConstraint(
                name="manual_task_decided_by_someone",
                condition=~Q(state__in=["approved", "rejected"]) | ~Q(decided_by=None) & ~Q(decided_at=None),
            ),
            models.CheckConstraint(
                name="manual_task_four_eyes",
                condition=Q(four_eyes=False)
                | Q(requested_by__isnull=False) & (Q(decided_by=None) | ~Q(decided_by=F("requested_by"))),
            ),
            models.CheckConstraint(
                name="manual_task_on_expiry_is_known", condition=Q(on_expiry__in=["expired", "approved", "rejected"])
            ),
        ]
        indexes = [
            models.Index(name="manual_task_open", fields=["expires_at"], condition=Q(state="open")),
            # health.needs_a_person: the oldest of each team and type, those due first, and those of each assignee.
            models.Index(
                name="manual_task_oldest", fields=["team", "task_type", "created_at", "id"], condition=Q(state="open")
            ),
            models.Index("team", "task_type", DUE, "id", name="manual_task_of_team", condition=Q(state="open")),
            models.Index(
                name="manual_task_assigned",
                fields=["assignee", "created_at", "id"],
                condition=Q(state="open") & ~Q(assignee=None),
            ),
            # health.needs_a_person: tasks for which a lead was asked to help.
            models.Index(
                name="manual_task_lead",
                fields=["lead_asked_at", "id"],
                condition=Q(state="open") & ~Q(lead_asked_at=None),
            ),
            # Home and `next_task`: the next tasks to decide, by due time, of all types and of one.
            models.Index(DUE, "id", name="manual_task_inbox", condition=Q(state="open")),
            models.Index("task_type", DUE, "id", name="manual_task_of_type", condition=Q(state="open")),
            # Closed tasks, newest first; few are rejected or expired.
            models.Index(name="manual_task_closed", fields=["state", "id"], condition=~Q(state="open")),
            # operations.undoing: decisions whose signals are not stored yet.
            models.Index(name="manual_task_held", fields=["decided_at"], condition=Q(held__isnull=False)),
            # The overdue tasks.
            models.Index(name="manual_task_due", fields=["due_at"], condition=Q(state="open") & ~Q(due_at=None)),
        ]

    def __str__(self) -> str:
        return f"manual task {self.pk}"

    @property
    def signal_name(self) -> str:
        """The name of the signal that carries its decision."""
        return f"decision:{self.pk}"
