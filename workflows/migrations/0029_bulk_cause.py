"""The cause that the items of a bulk operation failed for: its page says what became of them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0028_lists")]

    operations = [
        migrations.AddField("BulkOperation", "cause", models.CharField(max_length=410, db_default="")),
    ]
