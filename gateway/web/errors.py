"""What a refused request is told: one JSON shape on every route, the one OpenAI's clients understand."""

import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.texts import storable
from gateway.web.headers import HEADERS

log = structlog.get_logger(__name__)


class Refused(Exception):
    """A request that gets an error instead of an answer; `param` names the field that is wrong."""

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
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = storable(message)
        self.param = param and storable(param)
        self.type = type
        self.headers = headers or {}

    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as JSON."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def handle_errors(app: FastAPI) -> None:
    """Give every error the one shape."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(TryAgainLater, _later)
    app.add_exception_handler(OwnerMustAct, _up_to_the_owner)
    app.add_exception_handler(Exception, _broken)


async def _refused(_request: Request, exc: Exception) -> JSONResponse:
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


async def _later(_request: Request, exc: Exception) -> JSONResponse:
    log.warning("web.not_now", error=str(exc))
    message = "The gateway cannot do this right now; nothing was accepted. Try again in a moment."
    return _response(Refused(503, "try_again", message, type="server_error", headers={"Retry-After": "1"}))


async def _up_to_the_owner(_request: Request, exc: Exception) -> JSONResponse:
    return _response(Refused(409, "owner_must_act", str(exc)))


async def _broken(request: Request, exc: Exception) -> JSONResponse:
    log.error("web.broken", path=request.url.path, exc_info=exc)
    # answered outside all middleware, so the headers are added here
    message = "This is a defect; the log says where."
    return _response(Refused(500, "internal_error", message, type="server_error", headers=HEADERS))


def _response(refused: Refused) -> JSONResponse:
    return JSONResponse(refused.body(), refused.status, refused.headers)
