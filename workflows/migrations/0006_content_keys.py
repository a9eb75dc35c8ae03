"""The keys of private workflows, each in a row that is deleted when its workflow is emptied."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0005_undelivered_open")]

    operations = [
        migrations.CreateModel(
            name="ContentKey",
            fields=[
                ("idempotency_key", models.UUIDField(primary_key=True, serialize=False)),
                ("wrapped", models.CharField(max_length=200)),
            ],
            options={"default_permissions": ()},
        )
    ]
