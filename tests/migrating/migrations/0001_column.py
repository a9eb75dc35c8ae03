from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("migrating", "0000_thing")]
    operations = [
        migrations.RemoveField("thing", "old"),
        migrations.RunSQL(
            "ALTER TABLE workflows_workflow ADD COLUMN ahead int NOT NULL DEFAULT 1",
            "ALTER TABLE workflows_workflow DROP COLUMN ahead",
        ),
    ]
