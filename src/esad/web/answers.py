"""Errors as one JSON shape: {"error": {"status": 422, "code": "unprocessable_content", "message": "..."}}."""

import errno
import json
import logging
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from esad.core.atomic import DISK_FULL
from esad.errors import InputError, RequestError

_LOG = logging.getLogger(__name__)
_NO_ROOM = DISK_FULL | {errno.EFBIG}
MAX_SHOWN = 100  # characters of a path or header that an answer repeats
_CODES = {413: "content_too_large", 422: "unprocessable_content"}  # Python renamed these between versions


def error_document(status: int, message: str, **more: Any) -> dict[str, Any]:
    """The one shape of an error.

    Examples
    --------
    >>> error_document(404, "There is no page '/x'.")
    {'error': {'status': 404, 'code': 'not_found', 'message': "There is no page '/x'."}}
    """
    code = _CODES.get(status) or HTTPStatus(status).name.lower()
    return {"error": {"status": status, "code": code, "message": " ".join(message.split())} | more}


def json_response(document: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a JSON answer: ASCII, so that no text is malformed, and without NaN, which is not JSON."""
    body = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return Response(body, status, headers, "application/json")


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any) -> Response:
    """An error as an answer."""
    return json_response(error_document(status, message, **more), status=status, headers=headers)


def describe_error(error: BaseException, *, where: str = "") -> Response:
    """Turn an exception into an answer; a bug is logged, and its answer holds only the number of the log entry."""
    if isinstance(error, RequestError):
        return error_response(error.status, str(error), error.headers)
    if isinstance(error, InputError):
        return error_response(422, str(error))
    if isinstance(error, ClientDisconnect):  # nobody will read this
        return error_response(400, "The request was cut off.")
    if isinstance(error, OSError) and error.errno in _NO_ROOM:  # bodies lie in temporary files while they are read
        _LOG.error("no room on the disk%s: %s", where and f" for {where}", error)
        return error_response(503, "There is no room on the disk here. Try again later.", {"retry-after": "5"})
    reference = secrets.token_hex(4)
    _LOG.error("internal error %s%s: %r", reference, where and f" in {where}", error, exc_info=error)
    return error_response(500, f"Something went wrong here; the log has it as {reference}.", reference=reference)


def make_application(title: str, **options: Any) -> FastAPI:
    """An application that answers every error in the one shape: ours, FastAPI's and Starlette's.

    It has no pages of documentation, whose scripts would come from elsewhere; /openapi.json is there.

    Parameters
    ----------
    title : str
        Of the OpenAPI document.
    **options
        For `fastapi.FastAPI`.
    """
    handlers: dict[int | type[Exception], Any] = {
        InputError: _answer_error,
        RequestValidationError: _answer_invalid_request,
        HTTPException: _answer_http_error,
        Exception: _answer_error,
    }
    return FastAPI(title=title, docs_url=None, redoc_url=None, exception_handlers=handlers, **options)


async def _answer_error(request: Request, error: Exception) -> Response:
    return describe_error(error, where=f"{request.method} {request.url.path[:MAX_SHOWN]}")


async def _answer_invalid_request(request: Request, error: RequestValidationError) -> Response:
    found = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
    return error_response(422, "; ".join(found))


async def _answer_http_error(request: Request, error: HTTPException) -> Response:
    path = request.url.path if len(request.url.path) <= MAX_SHOWN else f"{request.url.path[:MAX_SHOWN]}..."
    messages = {404: f"There is no {path!r} here.", 405: f"{path!r} does not take {request.method[:20]}."}
    return error_response(error.status_code, messages.get(error.status_code, str(error.detail)), error.headers)
