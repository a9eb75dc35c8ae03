"""Refuses uploads, because no form has a file: Django's handlers would write one of any size to the disk."""

from __future__ import annotations

from typing import Any, NoReturn

from django.conf import settings
from django.core.files.uploadhandler import FileUploadHandler
from django.http.multipartparser import MultiPartParserError


class NoFiles(FileUploadHandler):
    """Refuses a file; and a body that is too large for a form, before reading it."""

    def handle_raw_input(self, input_data: Any, META: Any, content_length: int, *rest: Any, **more: Any) -> None:  # noqa: N803 (Django's name)
        if content_length > (settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0):
            raise MultiPartParserError("The form is too large.")

    def new_file(self, *args: Any, **more: Any) -> NoReturn:
        raise MultiPartParserError("No form takes a file.")

    def receive_data_chunk(self, raw_data: bytes, start: int) -> NoReturn:
        raise NotImplementedError

    def file_complete(self, file_size: int) -> None:
        return None
