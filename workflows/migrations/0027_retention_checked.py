from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("workflows", "0026_retention_indexes")]

    operations = [ValidateConstraint("Workflow", name="workflow_emptied_is_at_rest")]
