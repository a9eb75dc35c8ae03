#!/usr/bin/env bash
# gunicorn 27.0.1, Linux, Python 3.11 or newer.
#
# Expected: --backlog is how many connections wait to be accepted, whatever the worker class is.
# Seen:     with `-k asgi` it has no effect on the socket that listens: asyncio's default of 100 is set, in place of 20.
#           A limit that is meant to turn clients away early does not; a larger one than 100 is not had.
#
#   -k sync --backlog 20: the kernel says 20
#   -k asgi --backlog 20: the kernel says 100
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet gunicorn==27.0.1
cd "$folder"
echo 'async def app(scope, receive, send): pass' > nothing.py

backlog() { # worker class: what the kernel says of the listening socket, in `ss -ltn` (iproute2) the column Send-Q
    venv/bin/gunicorn -k "$1" --backlog 20 --no-control-socket -b 127.0.0.1:0 nothing:app > log 2>&1 &
    server=$!
    for _ in $(seq 100); do grep -q "Booting worker" log && break; sleep 0.1; done
    sleep 1
    ss -ltnH "sport = :$(sed -n 's#.*Listening at: http://127.0.0.1:\([0-9]*\).*#\1#p' log)" | awk '{print $3}'
    kill "$server"
    wait "$server" || true
    server=
}

seen="$(backlog sync) $(backlog asgi)"
echo "backlog of sync and asgi, of 20: $seen"
[ "$seen" = "20 100" ] || { echo "This has changed: 20 100 was seen with 27.0.1."; exit 1; }
