from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workflows", "0033_ages")]

    operations = [
        migrations.AlterField(
            model_name="chore",
            name="name",
            field=models.CharField(max_length=150, primary_key=True, serialize=False),
        ),
    ]
