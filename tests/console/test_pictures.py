"""`make pictures`: one of them, taken into a folder of the test's own."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import CHROMIUM
from tests.pictures.album import LARGEST
from tests.servers import ROOT, database_url


@pytest.mark.skipif(CHROMIUM is None, reason="No Chromium on this machine: apt-get install chromium")
def test_a_picture_is_taken_over_a_demo_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.pictures", "--only", "unclear-call.*", "--into", tmp_path, "--submissions", "1"],
        cwd=ROOT,
        env={**os.environ, "DEBUG": "1", "DATABASE_URL": database_url()},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (taken,) = tmp_path.iterdir()
    assert taken.name == "unclear-call-dark.png"
    picture = taken.read_bytes()
    assert struct.unpack(">8s4x4sII", picture[:24]) == (b"\x89PNG\r\n\x1a\n", b"IHDR", 1180, 900)
    assert 10_000 < len(picture) < LARGEST
