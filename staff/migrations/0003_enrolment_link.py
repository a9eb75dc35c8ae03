from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """The links by which second factors are enrolled."""

    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("staff", "0002_cache")]

    operations = [
        migrations.CreateModel(
            name="EnrolmentLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("made_at", models.DateTimeField(auto_now_add=True)),
                ("user", models.ForeignKey(on_delete=models.deletion.CASCADE, to=settings.AUTH_USER_MODEL)),
            ],
            options={"default_permissions": ()},
        ),
    ]
