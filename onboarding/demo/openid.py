"""Single sign-on: npm's `oidc-provider`, a certified OpenID provider, in a process of its own. Tests use it, too."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from allauth.socialaccount.models import SocialAccount
from django.conf import settings

from onboarding.demo.logins import SUPERUSER, Login
from onboarding.demo.processes import DemoError, Processes
from staff.enrolment import new_link

HERE = Path(__file__).parent / "provider"

# Seconds for npm to fetch Node 22 and the provider, 190 MB once unpacked.
FETCHED_WITHIN = 180


def install() -> Path:
    """The folder of Node 22 and the provider; npm fetches both at the first time. Raises DemoError."""
    place: Path = settings.VAR_DIR / "oidc-provider"
    settings.VAR_DIR.mkdir(exist_ok=True)
    with (settings.VAR_DIR / "oidc-provider.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not (place / "node_modules/.bin/node").exists():
            _fetch(place)
        shutil.copy(HERE / "provider.mjs", place)
    return place


def _fetch(place: Path) -> None:
    if not shutil.which("npm"):
        raise DemoError(
            "Single sign-on needs npm, which fetches an OpenID provider. On Debian and Ubuntu: apt-get install npm. Or "
            "leave --sso out: people then sign in by passwords."
        )
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "package.json", place)
    try:
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=place, timeout=FETCHED_WITHIN, check=True, capture_output=True)
    except (subprocess.SubprocessError, OSError) as why:
        shutil.rmtree(place)
        raise DemoError(
            f"npm could not fetch the OpenID provider ({type(why).__name__}). Is its registry within reach? Try "
            f"`npm ping`, or leave --sso out."
        ) from None


def start(processes: Processes, place: Path, port: int, *, console: str, people: Collection[Login]) -> dict[str, str]:
    """Start the provider with the demo's users, and return the settings of the console's process."""
    issuer, ours = f"http://127.0.0.1:{port}", f"{console}/admin/single-sign-on"
    users = {each.name: {"groups": [each.group]} for each in people if each.group}
    # Those of an earlier demo may be linked to a provider on another port.
    SocialAccount.objects.filter(user__username__in=users).delete()
    state = processes.logs / "openid.json"
    told = {"users": users, "clock": 0, "redirects": [f"{ours}/callback/"], "logout": f"{ours}/end/"}
    state.write_text(json.dumps(told))
    program, ready = str(place / "node_modules/.bin/node"), f"{issuer}/.well-known/openid-configuration"
    processes.start("provider", [str(place / "provider.mjs"), str(state), str(port)], program=program, ready=ready)
    return {
        "OIDC_ISSUER": issuer,
        "OIDC_CLIENT_ID": "onramp",
        "OIDC_CLIENT_SECRET": "secret of onramp",
        "OIDC_GROUPS": json.dumps({each.group: each.group for each in people if each.group}),
        "OIDC_BREAK_GLASS": SUPERUSER,
    }


def break_glass(people: Collection[Login], console: str) -> str:
    """How the superuser signs in when the provider is down, in sentences."""
    (boss,) = (each for each in people if not each.group)
    return (
        f"{boss.name} is the break-glass account: it signs in by its password, in an emergency, with a second factor. "
        f"Set one up first, by this link:\n  {console}{new_link(boss.user, by=None, lost=True)}"
    )
