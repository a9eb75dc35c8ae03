from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models
from django.db.models import Q

BY_A_PERSON = ~Q(actor="")


def of_log(name: str, columns: str) -> migrations.RunSQL:
    return migrations.RunSQL(
        f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {name} ON django_admin_log ({columns})",
        f"DROP INDEX CONCURRENTLY IF EXISTS {name}",
    )


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0018_access"), ("admin", "0003_logentry_add_action_flag_choices")]

    operations = [
        AddIndexConcurrently("Access", models.Index(name="access_newest", fields=["-at", "-id"])),
        AddIndexConcurrently("Access", models.Index(name="access_of_actor", fields=["actor", "-at", "-id"])),
        AddIndexConcurrently(
            "Access", models.Index(name="access_revealed", fields=["-at", "actor"], condition=Q(kind="revealed"))
        ),
        AddIndexConcurrently("Search", models.Index(name="search_newest", fields=["-at", "-id"])),
        AddIndexConcurrently("Search", models.Index(name="search_of_person", fields=["actor", "-at", "-id"])),
        RemoveIndexConcurrently("Search", "search_of_actor"),
        AddIndexConcurrently(
            "Event", models.Index(name="event_of_people", fields=["-at", "-id"], condition=BY_A_PERSON)
        ),
        AddIndexConcurrently(
            "Event", models.Index(name="event_of_actor", fields=["actor", "-at", "-id"], condition=BY_A_PERSON)
        ),
        AddIndexConcurrently(
            "CircuitEvent",
            models.Index(name="circuit_event_of_people", fields=["-at", "-id"], condition=BY_A_PERSON),
        ),
        AddIndexConcurrently(
            "CircuitEvent",
            models.Index(name="circuit_event_of_actor", fields=["actor", "-at", "-id"], condition=BY_A_PERSON),
        ),
        of_log("admin_log_newest", "action_time DESC, id DESC"),
        of_log("admin_log_of_user", "user_id, action_time DESC, id DESC"),
    ]
