"""The account that the embedded server runs as: our own, or an unprivileged one if we are root."""

import os
import pwd
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from config.embedded.errors import EmbeddedServerError

# The accounts that the server may run as when we are root: the first that exists.
ACCOUNTS = ["postgres", "nobody"]


class Account(NamedTuple):
    uid: int
    gid: int

    def __str__(self) -> str:
        try:
            return pwd.getpwuid(self.uid).pw_name
        except KeyError:
            return f"user {self.uid}"


def account_of(cluster: Path) -> Account:
    """The account of the server of `cluster`: our own, unless we are root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if cluster.exists() and (owner := cluster.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    for name in ACCOUNTS:
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedServerError(f"PostgreSQL refuses to run as root, and there is no account {' or '.join(ACCOUNTS)}.")


def run_as(account: Account, program: str | Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end as `account`. Raises OSError if it cannot start."""
    return subprocess.run(
        [program, *arguments],
        user=account.uid,
        group=account.gid,
        extra_groups=[] if os.geteuid() == 0 else None,
        umask=0o077,
        # Without the caller's PG* variables, and not in its folder, which the account may not be able to enter.
        env={"PATH": os.defpath, "LC_ALL": "C"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
