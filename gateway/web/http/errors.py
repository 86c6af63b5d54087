"""Error responses: one JSON format on every route, the one OpenAI's clients understand."""

from collections.abc import Mapping
from http import HTTPStatus

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.agent.memory.remember import MemoryRefused, UnknownMemory
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.text.texts import storable
from gateway.flow.files.uploads import UploadRefused
from gateway.flow.unattended.triggers import KeyReused, NoSuchChannel
from gateway.timetable.schedules import InvalidSchedule
from gateway.web.http.headers import HEADERS
from gateway.web.pages import Pages
from gateway.workspace.files.paths import WorkspaceError

log = structlog.get_logger(__name__)

_DOMAIN_ERRORS: Mapping[type[Exception], tuple[int, str, str | None]] = {
    InvalidSchedule: (409, "refused", None),
    KeyReused: (409, "key_reused", "idempotency_key"),
    MemoryRefused: (400, "not_done", None),
    NoSuchChannel: (400, "unknown_channel", "deliver_to"),
    OwnerMustAct: (409, "owner_must_act", None),
    UnknownMemory: (404, "not_found", None),
    UploadRefused: (413, "file_refused", None),
}
"""Status, code and param of the response to an error of the floors below, whose text is for the client."""
_PROGRAMS = ("/api/", "/v1/")
"""Paths that answer in JSON, also to a browser."""


class Refused(HTTPException):
    """Refuses the request with an error response; `param` names the invalid field.

    An `HTTPException`, because FastAPI turns any other error in the middle of a body into a 400.
    """

    def __init__(
        self,
        status: int,
        code: str | None,
        message: str,
        *,
        param: str | None = None,
        type: str = "invalid_request_error",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, message)
        self.status = status
        self.code = code
        self.message = storable(message)
        self.param = param and storable(param)
        self.type = type
        self.headers: dict[str, str] = headers or {}

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as JSON."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def handle_errors(app: FastAPI) -> None:
    """Register handlers that give every error this format."""
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(TryAgainLater, unavailable)
    app.add_exception_handler(WorkspaceError, _workspace_error)
    for error in _DOMAIN_ERRORS:
        app.add_exception_handler(error, _domain_error)
    app.add_exception_handler(Exception, _defect)


async def refused(request: Request, exc: Exception) -> Response:
    """The response to a `Refused`."""
    assert isinstance(exc, Refused)
    return _response(request, exc)


async def _http(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    return _response(request, Refused(exc.status_code, None, exc.detail, headers=dict(exc.headers or {})))


async def _invalid(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    first = exc.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return _response(request, Refused(400, "invalid_request", f"{param or 'The request'}: {first['msg']}", param=param))


async def unavailable(request: Request, exc: Exception) -> Response:
    """The response to a `TryAgainLater`."""
    log.warning("web.not_now", error=str(exc))
    message = "The gateway cannot do this right now; nothing was accepted. Try again in a moment."
    return _response(request, Refused(503, "try_again", message, type="server_error", headers={"Retry-After": "1"}))


async def _domain_error(request: Request, exc: Exception) -> Response:
    status, code, param = next(_DOMAIN_ERRORS[kind] for kind in type(exc).__mro__ if kind in _DOMAIN_ERRORS)
    return _response(request, Refused(status, code, str(exc), param=param))


async def _workspace_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, WorkspaceError)
    return _response(request, Refused(404 if exc.code == "not_found" else 409, exc.code, str(exc), param="path"))


async def _defect(request: Request, exc: Exception) -> Response:
    log.error("web.broken", path=request.url.path, exc_info=exc)
    # this response bypasses the middleware, so the headers are added here
    message = "Internal error; see the gateway's log."
    return _response(request, Refused(500, "internal_error", message, type="server_error", headers=HEADERS))


def _response(request: Request, refused: Refused) -> Response:
    """The error as JSON, or as a page where a person's browser opens an address."""
    if request.headers.get("Sec-Fetch-Mode") != "navigate" or request.url.path.startswith(_PROGRAMS):
        return JSONResponse(refused.body(), refused.status, refused.headers)
    status = HTTPStatus(refused.status)
    pages: Pages = request.app.state.site.pages
    page = pages.page(request, "error.html", title=status.phrase, message=refused.message, found=status != 404)
    page.status_code = status
    page.headers.update(refused.headers)
    return page
