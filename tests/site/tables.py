"""A picture of the tables: each with its key and what it refers to, in the room that writes it."""

from __future__ import annotations

from html import escape

from django.apps import apps
from django.db.models import Model, UniqueConstraint

# By room, in the order of the picture. A table that is missing here fails the build.
ROOMS = {
    "The workflow and its runs": "workflow attempt effect event workerprocess chore",
    "What it waits for": "wait signal manualtask",
    "Clients and senders": "apikey webhooksecret undeliveredmessage sideprocess spentkey",
    "Search, and who looked": "searchkey search access",
    "Business key": "businesskey",
    "Outages, brake and pace": "service circuitevent pace",
    "Deferred steps": "followup",
    "Cases": "casenote",
    "Pauses": "pause",
    "Deputies": "deputy",
    "Lists": "savedview",
    "Corrections": "correction originalpayload",
    "Two people": "confirmation",
    "The operator's API": "proposal",
    "Bulk operations": "bulkoperation bulkitem",
    "Retention": "erasure hold",
    "Outbox": "outboxevent",
    "Notices": "notice mutedmail",
    "Trends": "rollup rollupprogress",
    "Failures in the console": "assignedcause",
    "Sealing": "datakey",
    "Staff": "factorsecret enrolmentlink",
}
COLUMNS, WIDTH, GAP, LINE = 3, 330, 16, 18


def picture() -> str:
    """The page with the picture, as SVG in the colours of the page. Raises ValueError for a table without a room."""
    tables = {
        model._meta.db_table.partition("_")[2]: model
        for app in ("workflows", "staff")
        for model in apps.get_app_config(app).get_models(include_auto_created=True)
    }
    shown = {name for names in ROOMS.values() for name in names.split()}
    if tables.keys() != shown:
        raise ValueError(f"tests/site/tables.py names a room for each table; these differ: {tables.keys() ^ shown}")
    heights, drawn = [0] * COLUMNS, []
    for room, names in ROOMS.items():
        column = heights.index(min(heights))
        drawn.append(of_room(room, [(name, lines_of(tables[name])) for name in names.split()], column, heights))
    size = f"{COLUMNS * (WIDTH + GAP)} {max(heights)}"
    return (
        "---\nhide: [toc]\n---\n\n# Tables\n\n"
        "`#` is a table's key, `→` the table that a column refers to, and `=` what is unique. "
        "[Data](../data.md) tells of each column, whom it is about and how long it is kept.\n\n"
        f'<div class="tables"><svg viewBox="0 0 {size}" role="img" aria-label="The tables by room">'
        f"{''.join(drawn)}</svg></div>\n"
    )


def lines_of(model: type[Model]) -> list[str]:
    meta = model._meta
    lines = [f"# {meta.pk.name}"]
    for field in meta.get_fields():
        if field.concrete and field.related_model and isinstance(field.related_model, type):
            to = field.related_model._meta
            lines.append(f"{field.name} → {to.db_table.removeprefix('workflows_')}")
    own = [field for field in meta.fields if not (field.primary_key or field.related_model)]
    unique = [[field.name] for field in own if field.unique]
    unique += [list(each.fields) for each in meta.constraints if isinstance(each, UniqueConstraint) and each.fields]
    return lines + [f"= {', '.join(fields)}" for fields in unique]


def of_room(room: str, tables: list[tuple[str, list[str]]], column: int, heights: list[int]) -> str:
    """Draw a room at the foot of its column, and make the column longer."""
    x, y = column * (WIDTH + GAP), heights[column]
    parts = [f'<text class="room" x="{x}" y="{y + 20}">{escape(room)}</text>']
    y += 30
    for name, lines in tables:
        height = (len(lines) + 1) * LINE + 12
        parts.append(f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{height}" rx="6"/>')
        parts.append(f'<text class="table" x="{x + 10}" y="{y + 20}">{name}</text>')
        for place, line in enumerate(lines, start=1):
            parts.append(f'<text x="{x + 10}" y="{y + 20 + place * LINE}">{escape(line)}</text>')
        y += height + 8
    heights[column] = y + GAP
    return "".join(parts)
