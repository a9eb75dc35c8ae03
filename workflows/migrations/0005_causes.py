"""Causes beside the services, and who may let fail what is parked on one."""

from importlib import import_module
from typing import Any

import django.contrib.postgres.fields
from django.db import migrations, models

GROUPS = {"support lead": ["let_fail_service"], "engineer": ["let_fail_service"]}


def grant(apps: Any, schema_editor: Any) -> None:
    import_module("workflows.migrations.0002_groups").grant(apps, schema_editor, GROUPS)


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0004_business_key_indexes"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="service",
            options={
                "default_permissions": ("view",),
                "permissions": [
                    ("hold_service", "Can hold a service: no workflow calls it"),
                    ("try_service", "Can have a service tried now"),
                    ("let_fail_service", "Can let the workflows fail that are parked on a cause"),
                ],
            },
        ),
        migrations.AddField(
            model_name="service",
            name="asked_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="service",
            name="asked_by",
            field=models.CharField(db_default="", max_length=150),
        ),
        migrations.AddField(
            model_name="service",
            name="asked_reason",
            field=models.TextField(db_default=""),
        ),
        migrations.AddField(
            model_name="service",
            name="code",
            field=models.CharField(db_default="", max_length=200),
        ),
        migrations.AddField(
            model_name="service",
            name="elsewhere",
            field=models.BooleanField(db_default=False),
        ),
        migrations.AddField(
            model_name="service",
            name="judged",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(), db_default=models.Value("{}"), size=None
            ),
        ),
        migrations.AddField(
            model_name="service",
            name="let_fail_by",
            field=models.CharField(db_default="", max_length=150),
        ),
        migrations.AddField(
            model_name="service",
            name="let_fail_reason",
            field=models.TextField(db_default=""),
        ),
        migrations.AddField(
            model_name="service",
            name="let_fail_until",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="service",
            name="releases",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=100), db_default=models.Value("{}"), size=None
            ),
        ),
        migrations.AddField(
            model_name="service",
            name="step",
            field=models.CharField(db_default="", max_length=100),
        ),
        migrations.AddField(
            model_name="service",
            name="tallies",
            field=models.JSONField(db_default=models.Value({}, models.JSONField())),
        ),
        migrations.AddField(
            model_name="service",
            name="traceback",
            field=models.TextField(db_default=""),
        ),
        migrations.AddField(
            model_name="service",
            name="workflow_type",
            field=models.CharField(db_default="", max_length=100),
        ),
        migrations.AlterField(
            model_name="circuitevent",
            name="kind",
            field=models.CharField(
                choices=[
                    ("opened", "Opened"),
                    ("closed", "Closed"),
                    ("held", "Held"),
                    ("tried", "To be tried"),
                    ("asked", "Asked to let fail"),
                    ("let_fail", "Let fail"),
                ],
                max_length=10,
            ),
        ),
        migrations.AlterField(
            model_name="circuitevent",
            name="service",
            field=models.CharField(max_length=410),
        ),
        migrations.AlterField(
            model_name="service",
            name="name",
            field=models.CharField(max_length=410, primary_key=True, serialize=False),
        ),
        migrations.AlterField(
            model_name="workflow",
            name="parked_on",
            field=models.CharField(db_default="", max_length=410),
        ),
        migrations.RunPython(grant, migrations.RunPython.noop),
    ]
