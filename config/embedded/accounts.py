"""The account that the embedded server runs as: our own, or an unprivileged one when we are root."""

import os
import pwd
import subprocess
from pathlib import Path
from typing import NamedTuple

from config.embedded.errors import EmbeddedServerError

# The accounts that the server may run as when we are root: the first that there is.
ACCOUNTS = ["postgres", "nobody"]


class Account(NamedTuple):
    uid: int
    gid: int


def account_of(cluster: Path) -> Account | None:
    """The account that the server of `cluster` runs as; None is our own, for PostgreSQL refuses only root."""
    if os.geteuid() != 0:
        return None
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    for name in ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedServerError(f"PostgreSQL refuses to run as root, and there is no account {' or '.join(ACCOUNTS)}.")


def name_of(account: Account | None) -> str:
    return user_name(os.geteuid() if account is None else account.uid)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def run_as(account: Account | None, program: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end as `account`. OSError when it cannot be started."""
    return subprocess.run(
        [program, *arguments],
        user=None if account is None else account.uid,
        group=None if account is None else account.gid,
        extra_groups=None if account is None else [],
        umask=0o077,
        # Neither the caller's PG* variables nor its folder: the account may not be able to enter it.
        env={"PATH": os.defpath, "LC_ALL": "C"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
