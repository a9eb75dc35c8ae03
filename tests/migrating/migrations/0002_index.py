from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("migrating", "0001_column")]
    operations = [
        migrations.RunSQL(
            "CREATE INDEX CONCURRENTLY ahead_index ON workflows_workflow (ahead)",
            "DROP INDEX CONCURRENTLY ahead_index",
        ),
    ]
