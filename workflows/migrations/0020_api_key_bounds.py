from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models import Value

NONE: Value = Value("{}")


class Migration(migrations.Migration):
    """What an API key may do is bounded; each key that exists goes on doing all that it could.

    A process of an older release beside it knows no bounds and no expiry: to it no key has any.
    """

    dependencies = [("workflows", "0019_search_keys_alone")]

    operations = [
        migrations.AddField("apikey", "types", ArrayField(models.CharField(max_length=100), db_default=NONE)),
        migrations.AddField("apikey", "queues", ArrayField(models.CharField(max_length=100), db_default=NONE)),
        migrations.AddField(
            "apikey",
            "verbs",
            ArrayField(models.CharField(max_length=20), db_default=Value("{submit,read,signal}")),
        ),
        migrations.AddField("apikey", "tenant_only", models.BooleanField(db_default=False)),
        migrations.AddField("apikey", "per_second", models.FloatField(null=True)),
        migrations.AddField("apikey", "expires_at", models.DateTimeField(null=True)),
        migrations.AddField("apikey", "last_used_at", models.DateTimeField(null=True)),
    ]
