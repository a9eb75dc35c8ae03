from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """The hashes of business keys get a table of their own.

    The column of before gets another name with it. So workers of the release before it fail where they judge a business
    key, and charge nobody: what they wrote there nobody would read. And until the hashes have moved (0019), the table is
    not called what workers of this release call it: they would find no holder, and charge a patient a second time.
    """

    dependencies = [("workflows", "0016_refused_found")]

    operations = [
        migrations.CreateModel(
            name="BusinessKeyHash",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "hash", "workflow_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("hash", models.BinaryField()),
                ("key_id", models.IntegerField()),
                (
                    "role",
                    models.CharField(
                        choices=[("holder", "Holder"), ("waiting", "Waiting"), ("former", "Former")], max_length=7
                    ),
                ),
                (
                    "workflow",
                    models.ForeignKey(
                        "workflows.workflow",
                        on_delete=models.DO_NOTHING,
                        db_constraint=False,
                        db_index=False,
                        related_name="business_key_hashes",
                    ),
                ),
            ],
            options={
                "db_table": "workflows_businesskey",
                "default_permissions": (),
                "indexes": [
                    models.Index(name="businesskey_holder", fields=["hash"], condition=Q(role="holder")),
                    models.Index(name="businesskey_waiting", fields=["workflow"], condition=Q(role="waiting")),
                ],
            },
        ),
        migrations.AlterModelTable("businesskeyhash", "workflows_businesskey_unmoved"),
        migrations.RemoveIndex(model_name="searchkeyhash", name="searchkey_holder"),
        migrations.RemoveIndex(model_name="searchkeyhash", name="searchkey_waiting"),
        migrations.RenameField(model_name="searchkeyhash", old_name="role", new_name="former_role"),
    ]
