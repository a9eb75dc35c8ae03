"""The tenant of an API key, and how many of a queue, type or tenant are under way at a time."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0015_lanes")]

    operations = [
        migrations.AddField("ApiKey", "tenant", models.CharField(db_default="", max_length=100)),
        migrations.AddField("Pace", "at_once", models.PositiveIntegerField(null=True)),
        migrations.AddField("Pace", "capped_by", models.CharField(db_default="", max_length=150)),
        migrations.AddField("Pace", "capped_reason", models.TextField(db_default="")),
        migrations.AlterModelOptions(
            "Pace",
            {
                "default_permissions": ("view",),
                "permissions": [("set_pace", "Can hold a queue or a type, and set its pace")],
                "verbose_name": "queue, type or tenant",
                "verbose_name_plural": "queues, types and tenants",
            },
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
                    ("released", "Released"),
                    ("paced", "Paced"),
                    ("capped", "Capped"),
                ],
                max_length=10,
            ),
        ),
    ]
