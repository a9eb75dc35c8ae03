from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    dependencies = [("workflows", "0020_rights_of_keys")]

    operations = [
        migrations.CreateModel(
            "DataKey",
            [
                ("id", models.CharField(max_length=8, primary_key=True, serialize=False)),
                ("since", models.DateTimeField(db_default=Now())),
            ],
            options={"default_permissions": ()},
        ),
    ]
