from django.db import migrations


class Migration(migrations.Migration):
    """The table of Django's cache, as `createcachetable` makes it: codes that were used, and counts of wrong ones."""

    dependencies = [("staff", "0001_factor_secret")]

    operations = [
        migrations.RunSQL(
            """
            CREATE TABLE staff_cache (
                cache_key varchar(255) PRIMARY KEY, value text NOT NULL, expires timestamp with time zone NOT NULL
            );
            CREATE INDEX staff_cache_expires ON staff_cache (expires);
            """,
            "DROP TABLE staff_cache",
        )
    ]
