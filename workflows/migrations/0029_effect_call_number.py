"""Each INTENT draws a number, by which calls are undone: their times are in another order after the clock was set back.

The column is added without a default, or PostgreSQL would write every row anew. A worker of the release before draws a
number for a new call; one that it repeats keeps the number that it has.
"""

from django.db import migrations, models

import workflows.models.effect

HELP = "Drawn as the call is begun: calls are undone in the reverse order, whatever the clock says."


class Migration(migrations.Migration):
    dependencies = [
        ("workflows", "0028_undelivered_by_time"),
    ]

    operations = [
        migrations.RunSQL(
            # A column's own sequence needs no grant, and this one is to need none either.
            "CREATE SEQUENCE workflows_effect_call_number; GRANT USAGE ON SEQUENCE workflows_effect_call_number TO PUBLIC",
            "DROP SEQUENCE workflows_effect_call_number",
        ),
        migrations.AddField("effect", "call_number", models.BigIntegerField(null=True, help_text=HELP)),
        migrations.AlterField(
            "effect",
            "call_number",
            models.BigIntegerField(null=True, db_default=workflows.models.effect.NextCallNumber(), help_text=HELP),
        ),
    ]
