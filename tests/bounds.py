"""How many lines of Python the parts of `workflows` may have; `make lint` asks (docs/adr/0037).

A part that outgrows its bound is split, or gives something up. Whoever raises a bound says why in the commit.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "workflows"
# What a reader of the engine has to know, and no feature is in.
ENGINE = ("definition.py", "errors.py", "engine", "effects", "waits", "signals", "models", "state", "postgres")
MOST_OF_THE_ENGINE = 13_860
MOST_OF_A_FEATURE = 1_500
# Larger than that already: each may only get smaller.
LARGER = {"bulk": 1_540, "doctor": 1_785, "outages": 1_665, "outbox": 1_605, "queues": 1_850}
# Of a file that makes pages, and of a template: what somebody reads at once.
MOST_OF_A_PAGE = 300
MAKES_PAGES = re.compile(r"\b(TemplateResponse|ConsoleAdmin)\b")


def lines_of(*paths: Path) -> int:
    files = [each for path in paths for each in ([path] if path.is_file() else path.rglob("*.py"))]
    return sum(len(each.read_text().splitlines()) for each in files if "migrations" not in each.parts)


def pages() -> list[Path]:
    """The console's modules and templates, and the features' modules that make pages."""
    of_features = [each for each in (ROOT / "features").rglob("*.py") if MAKES_PAGES.search(each.read_text())]
    return [*(ROOT / "console").rglob("*.py"), *of_features, *(ROOT / "templates").rglob("*.html")]


def main() -> int:
    """Print each part with its bound, and the longest page. Return 1 if one has more."""
    parts = {"the engine": (lines_of(*(ROOT / each for each in ENGINE)), MOST_OF_THE_ENGINE)}
    for room in sorted(path.parent for path in (ROOT / "features").glob("*/__init__.py")):
        parts[room.name] = lines_of(room), LARGER.get(room.name, MOST_OF_A_FEATURE)
    longest = max(pages(), key=lines_of)
    parts[f"page: {longest.name}"] = lines_of(longest), MOST_OF_A_PAGE
    for name, (lines, most) in parts.items():
        told = "" if lines <= most else "  TOO MANY"
        sys.stdout.write(f"{name:24} {lines:6,} of {most:6,} lines{told}\n")
    return int(any(lines > most for lines, most in parts.values()))


if __name__ == "__main__":
    sys.exit(main())
