import uuid

from django.db import migrations, models


class Migration(migrations.Migration):
    """The secrets of second factors, sealed; allauth's rows have their keys."""

    initial = True
    dependencies = []

    operations = [
        migrations.CreateModel(
            name="FactorSecret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("sealed", models.TextField()),
            ],
            options={"default_permissions": ()},
        ),
    ]
