"""Error responses: one JSON format on every route, the one OpenAI's clients understand."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeVar

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.agent.memory.remember import UnknownMemory
from gateway.agent.work.task_trees import NoSuchAgent, NoSuchTask
from gateway.domain.errors import OwnerMustAct, TryAgainLater, required
from gateway.domain.memory.memories import MemoryRefused
from gateway.domain.text.texts import storable
from gateway.flow.files.uploads import UploadRefused
from gateway.flow.unattended.triggers import KeyReused, NoSuchChannel
from gateway.net.errors import NetError
from gateway.timetable.schedules import InvalidSchedule
from gateway.web.http.headers import HEADERS
from gateway.web.pages import Pages
from gateway.workspace.files.paths import WorkspaceError

log = structlog.get_logger(__name__)
Value = TypeVar("Value")

_DOMAIN_ERRORS: Mapping[type[Exception], tuple[int, str, str | None]] = {
    InvalidSchedule: (409, "refused", None),
    KeyReused: (409, "key_reused", "idempotency_key"),
    MemoryRefused: (400, "not_done", None),
    NoSuchAgent: (400, "unknown_agent", "agent"),
    NoSuchChannel: (400, "unknown_channel", "deliver_to"),
    NoSuchTask: (404, "not_found", None),
    OwnerMustAct: (409, "owner_must_act", None),
    UnknownMemory: (404, "not_found", None),
    UploadRefused: (413, "file_refused", None),
}
"""Status, code and param of the response to an error of the floors below, whose text is for the client."""
_PROGRAMS = ("/api/", "/v1/")
"""Paths that answer in JSON, also to a browser."""


class Refused(HTTPException):
    """Refuses the request with an error response; `param` names the invalid field, `type` is that of OpenAI.

    An `HTTPException`, because FastAPI turns any other error in the middle of a body into a 400.
    """

    def __init__(
        self,
        status: int,
        code: str | None,
        message: str,
        *,
        param: str | None = None,
        type: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(status, storable(message))
        usual = "permission_error" if status == 403 else "server_error" if status >= 500 else "invalid_request_error"
        self.code = code
        self.param = param and storable(param)
        self.type = type or usual
        self.headers: dict[str, str] = headers or {}

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as JSON."""
        return {"error": {"message": self.detail, "type": self.type, "param": self.param, "code": self.code}}


def existing(value: Value | None, message: str) -> Value:
    """The value; raises `Refused` (404) with this message if there is none."""
    return required(value, Refused(404, "not_found", message))


def handle_errors(app: FastAPI) -> None:
    """Register a handler that gives every error this format."""
    kinds = HTTPException, RequestValidationError, TryAgainLater, WorkspaceError, NetError
    for kind in (*kinds, *_DOMAIN_ERRORS, Exception):
        app.add_exception_handler(kind, respond)


async def respond(request: Request, error: Exception) -> Response:
    """The response to an error: JSON, or a page where a person's browser opens an address."""
    refused = _refused(request, error)
    if request.headers.get("Sec-Fetch-Mode") != "navigate" or request.url.path.startswith(_PROGRAMS):
        return JSONResponse(refused.body(), refused.status_code, refused.headers)
    status = HTTPStatus(refused.status_code)
    pages: Pages = request.app.state.site.pages
    page = pages.page(request, "error.html", title=status.phrase, message=refused.detail, found=status != 404)
    page.status_code = status
    page.headers.update(refused.headers)
    return page


def _refused(request: Request, error: Exception) -> Refused:
    match error:
        case Refused():
            return error
        case HTTPException():
            return Refused(error.status_code, None, error.detail, headers=dict(error.headers or {}))
        case RequestValidationError():
            first = error.errors()[0]
            param = ".".join(str(part) for part in first["loc"][1:]) or None
            return Refused(400, "invalid_request", f"{param or 'The request'}: {first['msg']}", param=param)
        case TryAgainLater():
            log.warning("web.not_now", error=str(error))
            message = "The gateway cannot do this right now; nothing was accepted. Try again in a moment."
            return Refused(503, "try_again", message, headers={"Retry-After": "1"})
        case WorkspaceError():
            return Refused(404 if error.code == "not_found" else 409, error.code, str(error), param="path")
        case NetError():
            return Refused(400, error.code, str(error))
    if known := next((kind for kind in type(error).__mro__ if kind in _DOMAIN_ERRORS), None):
        status, code, of = _DOMAIN_ERRORS[known]
        return Refused(status, code, str(error), param=of)
    log.error("web.broken", path=request.url.path, exc_info=error)
    # this response bypasses the middleware, so the headers are added here
    return Refused(500, "internal_error", "Internal error; see the gateway's log.", headers=HEADERS)
