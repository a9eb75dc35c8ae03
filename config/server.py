"""The HTTP server's worker: gunicorn's threads, which answer what is not HTTP without quoting it."""

import json
import traceback
from http import HTTPStatus
from socket import socket
from typing import Any

from gunicorn import util
from gunicorn.http import errors
from gunicorn.workers.gthread import ThreadWorker

_STATUS: dict[type[Exception], HTTPStatus] = {
    errors.LimitRequestLine: HTTPStatus.REQUEST_URI_TOO_LONG,
    errors.LimitRequestHeaders: HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    errors.UnsupportedTransferCoding: HTTPStatus.NOT_IMPLEMENTED,
    errors.ExpectationFailed: HTTPStatus.EXPECTATION_FAILED,
}


class Worker(ThreadWorker):  # type: ignore[misc]
    def handle_error(self, req: Any, client: socket, addr: Any, exc: Exception) -> None:
        """Answer with a problem document and close the connection.

        Gunicorn's own answer, and the line it logs, quote the bytes that it could not read. After a Content-Length that
        was too short those bytes are the rest of a submission.
        """
        if isinstance(exc, errors.ParseException):
            status, code = _STATUS.get(type(exc), HTTPStatus.BAD_REQUEST), "not_http"
            self.log.warning("Refused what is not HTTP: %s", type(exc).__name__)
        else:
            status, code = HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error"
            where = "".join(traceback.format_tb(exc.__traceback__))
            self.log.error("Error handling a request: %s\n%s", type(exc).__name__, where)
        problem = {"type": "about:blank", "title": status.phrase, "status": int(status), "code": code}
        body = json.dumps(problem).encode()
        head = (
            f"HTTP/1.1 {int(status)} {status.phrase}\r\nConnection: close\r\n"
            f"Content-Type: application/problem+json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            util.write_nonblock(client, head.encode() + body)
        except OSError:
            self.log.debug("The client is gone.")
