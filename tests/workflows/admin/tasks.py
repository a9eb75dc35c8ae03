"""Manual tasks, and what their pages are asked and say."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from django.test import Client

from tests.workflows import rows
from workflows.models import ManualTask

# Of a step that does not say what it returns.
IN_DOUBT = {"task_type": "effect_in_doubt", "about": "reserve"}


def task(**fields: Any) -> ManualTask:
    return rows.open_task(rows.waiting(task=False), **fields)


def url(row: ManualTask, page: str = "change") -> str:
    return f"/admin/workflows/manualtask/{row.pk}/{page}/"


def words(html: str) -> str:
    """The text of a page; a time ends where a comma may follow it."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", re.sub(r"</?time[^>]*>", "", html))).split())


def page(client: Client, row: ManualTask) -> str:
    return client.get(url(row)).content.decode()


def offered(html: str) -> list[str]:
    """The buttons."""
    return re.findall(r"<button[^>]*>([^<]+)</button>", html.split('id="content"')[1])


PAID = {
    "answer-charge_id": "ch_1",
    "answer-payment_status": "paid",
    "answer-receipt": "6f6d0c5e-4f0a-4b53-9d7e-0c6f1d2a3b4c",
}


def decide(client: Client, row: ManualTask, **data: str) -> str:
    return words(client.post(url(row, "decide"), data, follow=True).content.decode())
