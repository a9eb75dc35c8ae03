"""What is worked off is vacuumed by the hundredth, and not by the fifth, of its table.

Looks for what is left walk over the entries of what is done, until a vacuum has removed these from the index: 34 ms each
after 700,000 workflows, and autovacuum would have come after 20% of the table. It is not made to come yet more often,
for each time it reads the indexes from end to end.

It must not leave the indexes alone either, which a vacuum does when less than 2% of a table's pages have something dead.

The other tables are not read from a worked-off end: the effects of a workflow, for one, are found by its id.
"""

from django.db import migrations

TABLES = ("workflow", "attempt", "signal", "wait")

SET = "ALTER TABLE workflows_{} SET (autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on)"
RESET = "ALTER TABLE workflows_{} RESET (autovacuum_vacuum_scale_factor, vacuum_index_cleanup)"


class Migration(migrations.Migration):
    dependencies = [("workflows", "0032_live_workers")]

    # These locks stop no reading and no writing.
    operations = [migrations.RunSQL(SET.format(table), RESET.format(table)) for table in TABLES]
