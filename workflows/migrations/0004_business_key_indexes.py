from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("workflows", "0003_business_keys")]

    operations = [
        AddIndexConcurrently(
            "SearchKeyHash", models.Index(name="searchkey_holder", fields=["hash"], condition=Q(role="holder"))
        ),
        AddIndexConcurrently(
            "SearchKeyHash", models.Index(name="searchkey_waiting", fields=["workflow"], condition=Q(role="waiting"))
        ),
    ]
