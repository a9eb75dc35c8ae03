from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("migrating", "0002_index")]
    operations = [
        migrations.RunSQL("ALTER TABLE workflows_workflow ADD COLUMN ahead_by_half int", migrations.RunSQL.noop),
        migrations.RunSQL("SELECT 1 / 0", migrations.RunSQL.noop),
    ]
