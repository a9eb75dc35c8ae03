"""When a wait ought to be over, and who sees to it then."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0010_traceparent")]

    operations = [
        migrations.AddField("wait", "due_at", models.DateTimeField(null=True)),
        migrations.AddField("wait", "team", models.CharField(max_length=150, db_default="")),
    ]
