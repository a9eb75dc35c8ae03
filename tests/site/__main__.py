"""python -m tests.site: build the docs as a site, and fail for whatever is broken in it (`make docs`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import django

from tests.site.built import faults
from tests.site.sources import ROOT, SOURCES, copy_sources

SITE = ROOT / "site"


def main() -> int:
    """Copy the sources, generate pages, build, look for faults. Return 0 if there are none, 1 if there are."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from tests.site.generated import pages  # here, because it reads the models

    shutil.rmtree(SOURCES, ignore_errors=True)
    shutil.rmtree(SITE, ignore_errors=True)
    wrong = copy_sources(pages())
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, capture_output=True, text=True
    )
    if built.returncode:
        wrong.append(built.stdout + built.stderr)
    wrong += faults(SITE) if not built.returncode else []
    for each in wrong:
        sys.stderr.write(f"{each}\n")
    if not wrong:
        sys.stdout.write(f"{sum(1 for _ in SITE.rglob('*.html'))} pages: {SITE / 'index.html'}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
