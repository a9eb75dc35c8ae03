"""The secrets that webhooks are signed with."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0013_manual_tasks"),
    ]

    operations = [
        migrations.CreateModel(
            name="WebhookSecret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("source", models.CharField(max_length=100)),
                ("secret", models.CharField(help_text="As the source has it: whsec_ and base64.", max_length=200)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("revoked_at", models.DateTimeField(null=True)),
            ],
            options={
                "default_permissions": (),
            },
        ),
    ]
