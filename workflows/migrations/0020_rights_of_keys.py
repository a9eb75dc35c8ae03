"""What an API key may do beside sending."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0019_audit_indexes")]

    operations = [
        migrations.AddField(
            "ApiKey",
            "may",
            django.contrib.postgres.fields.ArrayField(
                base_field=models.CharField(max_length=20), db_default=models.Value("{}"), size=None
            ),
        ),
    ]
