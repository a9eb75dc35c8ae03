"""python -m config.embedded: start, stop, restart and look at the embedded PostgreSQL."""

import argparse
import sys
from pathlib import Path

from config.embedded.errors import EmbeddedServerError
from config.embedded.server import DATABASE, PORT, USER, Server

HOME = Path(__file__).resolve().parents[2] / "var" / "postgres"

DESCRIPTION = """\
The PostgreSQL that the project runs on by default, with DEBUG=1 and no DATABASE_URL.

It is started by whatever needs it first, and then stays: a worker, the console and
the tests all share it. Its data is in var/postgres, and survives a restart.
"""

EPILOG = """\
examples:
  python -m config.embedded status                  is it running, and where?
  python -m config.embedded restart -m immediate    crash it: what was not committed is gone
  python -m config.embedded remove                  delete all of its data, to start again
"""


def main() -> int:
    arguments = parse_arguments()
    server = Server(arguments.home)
    try:
        match arguments.command:
            case "start":
                print("Started." if server.start() else "It was running already.")
            case "stop":
                print("Stopped." if server.stop(arguments.mode) else "It was not running.")
            case "restart":
                server.restart(arguments.mode)
                print("Restarted.")
            case "remove":
                server.remove()
                print("Removed, with all of its data.")
        return report(server) if arguments.command in {"start", "restart", "status"} else 0
    except EmbeddedServerError as error:
        print(error, file=sys.stderr)
        return 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m config.embedded",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--home", type=Path, default=HOME, help="where it lives (default: var/postgres)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("start", help="start it, making its data when it is new")
    commands.add_parser("status", help="say whether it runs and how to connect; exit code 3 when it does not run")
    for name, meaning in [("stop", "stop it"), ("restart", "stop it and start it again")]:
        command = commands.add_parser(name, help=meaning)
        command.add_argument(
            "-m",
            "--mode",
            choices=["smart", "fast", "immediate"],
            default="fast",
            help="smart waits for clients to leave, fast (the default) ends their connections, immediate is a crash",
        )
    commands.add_parser("remove", help="stop it and delete its data")
    return parser.parse_args()


def report(server: Server) -> int:
    pid = server.pid()
    if pid is None:
        print(f"Not running. Its home is {server.home}.")
        return 3  # as pg_ctl status
    print(f"Running, pid {pid}. Its log is {server.log}.")
    print(f"{server.program('psql')} -h {server.socket_folder()} -p {PORT} -U {USER} {DATABASE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
