from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0011_bulk_operations")]

    operations = [
        migrations.AddField("Workflow", "failed_release", models.CharField(max_length=100, db_default="")),
    ]
