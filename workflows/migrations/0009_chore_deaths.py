from django.db import migrations, models


class Migration(migrations.Migration):
    """Workers that die in a maintenance task are counted, and after so many it is set aside."""

    dependencies = [("workflows", "0008_emptied_history")]

    operations = [
        migrations.AlterModelOptions(
            name="chore", options={"default_permissions": (), "verbose_name": "maintenance task"}
        ),
        migrations.AddField(model_name="chore", name="begun_at", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="chore", name="deaths", field=models.SmallIntegerField(db_default=0)),
        migrations.AddField(model_name="chore", name="set_aside_at", field=models.DateTimeField(null=True)),
    ]
