from django.db import migrations


class Migration(migrations.Migration):
    """Only search keys are left in their table, and workers may compare business keys again."""

    dependencies = [("workflows", "0018_business_keys_moved")]

    operations = [
        migrations.RemoveField(model_name="searchkeyhash", name="former_role"),
        migrations.AlterModelTable("businesskeyhash", "workflows_businesskey"),
    ]
