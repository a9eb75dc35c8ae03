from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0034_chores_of_types")]

    operations = [
        migrations.AlterField(
            model_name="correction",
            name="state",
            field=models.CharField(
                choices=[
                    ("asked", "Waits for a second person"),
                    ("approved", "Approved"),
                    ("refused", "Refused"),
                    ("withdrawn", "Withdrawn"),
                    ("stale", "No longer asked"),
                    ("lapsed", "Lapsed"),
                ],
                db_default="asked",
                max_length=9,
            ),
        ),
    ]
