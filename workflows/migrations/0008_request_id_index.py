from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0007_request_ids")]

    operations = [
        AddIndexConcurrently(
            "Workflow",
            models.Index(
                name="workflow_request", fields=["given_request_id"], condition=~models.Q(given_request_id="")
            ),
        ),
    ]
