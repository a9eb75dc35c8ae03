from django.db import migrations, models


class Migration(migrations.Migration):
    operations = [
        migrations.CreateModel("Thing", [("id", models.BigAutoField(primary_key=True)), ("old", models.TextField())]),
    ]
