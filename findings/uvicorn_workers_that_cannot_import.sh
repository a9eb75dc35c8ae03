#!/usr/bin/env bash
# uvicorn 0.54.0, Python 3.11 or newer.
#
# Expected: a server whose application cannot be imported ends with an exit code other than 0, so that systemd
#           (Restart=on-failure) or Kubernetes tells of it. With one process it does.
# Seen:     with --workers 2 the exit code is 0 when the module is not there; and when it raises at import (a setting is
#           missing, say), the supervisor starts its processes again and again, and does not end.
#
#   no such module, 1 process:   exit 3
#   no such module, 2 processes: exit 0
#   it raises, 1 process:        exit 1
#   it raises, 2 processes:      still starting after 10 s
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet uvicorn==0.54.0
cd "$folder"
echo 'raise RuntimeError("a setting is missing")' > raises.py

serve() { # module, processes: the exit code; 124 if it has not ended after 10 s
    timeout 10 venv/bin/python -m uvicorn "$1:app" --workers "$2" --host 127.0.0.1 --port 0 > log 2>&1 && echo 0 || echo $?
}

seen="$(serve not_there 1) $(serve not_there 2) $(serve raises 1) $(serve raises 2)"
echo "no such module: 1 and 2 processes, it raises: 1 and 2 processes: $seen"
[ "$seen" = "3 0 1 124" ] || { echo "This has changed: 3 0 1 124 was seen with 0.54.0."; exit 1; }
