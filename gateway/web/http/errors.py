"""Error responses: one JSON format on every route, the one OpenAI's clients understand."""

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.text.texts import storable
from gateway.web.http.headers import HEADERS

log = structlog.get_logger(__name__)


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
    app.add_exception_handler(OwnerMustAct, _owner_must_act)
    app.add_exception_handler(Exception, _defect)


async def refused(_request: Request, exc: Exception) -> JSONResponse:
    """The response to a `Refused`."""
    assert isinstance(exc, Refused)
    return _response(exc)


async def _http(_request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)
    return _response(Refused(exc.status_code, None, exc.detail, headers=dict(exc.headers or {})))


async def _invalid(_request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)
    first = exc.errors()[0]
    param = ".".join(str(part) for part in first["loc"][1:]) or None
    return _response(Refused(400, "invalid_request", f"{param or 'The request'}: {first['msg']}", param=param))


async def unavailable(_request: Request, exc: Exception) -> JSONResponse:
    """The response to a `TryAgainLater`."""
    log.warning("web.not_now", error=str(exc))
    message = "The gateway cannot do this right now; nothing was accepted. Try again in a moment."
    return _response(Refused(503, "try_again", message, type="server_error", headers={"Retry-After": "1"}))


async def _owner_must_act(_request: Request, exc: Exception) -> JSONResponse:
    return _response(Refused(409, "owner_must_act", str(exc)))


async def _defect(request: Request, exc: Exception) -> JSONResponse:
    log.error("web.broken", path=request.url.path, exc_info=exc)
    # this response bypasses the middleware, so the headers are added here
    message = "Internal error; see the gateway's log."
    return _response(Refused(500, "internal_error", message, type="server_error", headers=HEADERS))


def _response(refused: Refused) -> JSONResponse:
    return JSONResponse(refused.body(), refused.status, refused.headers)
