from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0006_failed_reversals")]

    operations = [
        migrations.AddField("Workflow", "given_request_id", models.CharField(db_default="", max_length=64)),
    ]
