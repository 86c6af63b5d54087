"""Request bodies: the types of their fields, JSON of any size, and one file out of a multipart request."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, TypeVar

from fastapi import Request
from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from gateway.domain.errors import raising
from gateway.domain.text.texts import storable
from gateway.web.http.errors import Refused

_FIRST, _LAST = 1900, 2200


def _in_reach(at: datetime) -> datetime:
    if not _FIRST <= at.year < _LAST:
        raise ValueError(f"give a time between {_FIRST} and {_LAST}")
    return at if at.tzinfo else at.replace(tzinfo=UTC)


Text = Annotated[str, AfterValidator(storable)]
Name = Annotated[str, AfterValidator(storable), StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Moment = Annotated[datetime, AfterValidator(_in_reach)]
"""An ISO date or time; UTC unless it says otherwise."""


class RequestBody(BaseModel):
    """A JSON body; a field that it does not have is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def json_body(schema: Mapping[str, object]) -> dict[str, object]:
    """A JSON body for the OpenAPI document, of a route that parses it by itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


LARGE = 256 * 1024
"""Bytes; a larger body is parsed in a thread."""
MOST_VALUES = 100_000
"""In a large body. The parser blocks all threads, and 24 MB of empty lists take it 3 seconds."""

Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)


def validated(model: type[Model], body: bytes) -> Model:
    """The body as this model; raises `Refused`, naming the invalid field."""
    try:
        return model.model_validate(json.loads(body))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_request", "The body is not valid JSON.") from None
    param = ".".join(map(str, problem["loc"])) or None
    if problem["type"] == "extra_forbidden":
        message = f"{param} is not supported; use {', '.join(model.model_fields)}."
        raise Refused(400, "unknown_parameter", message, param=param)
    raise Refused(400, "invalid_request", f"{param or 'The request'}: {problem['msg']}", param=param)


async def parsed(body: bytes, parse: Callable[[bytes], Result], most: int = MOST_VALUES) -> Result:
    """`parse(body)`; raises `Refused` for a large body of more values, however long its texts may be."""
    if len(body) <= LARGE:
        return parse(body)
    if await asyncio.to_thread(_is_crowded, body, most):
        message = f"The body holds too many values; a request of more than {LARGE // 1024} KB may have {most:,}."
        raise Refused(400, "too_many_values", message)
    return await asyncio.to_thread(parse, body)


def _is_crowded(body: bytes, most: int) -> bool:
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 2 * most:
        return True
    outside = b"".join(plain.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{"))) > most


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file being uploaded; name and type are the client's claims. `pieces` raises `Refused` if it breaks off."""

    name: str
    mime: str
    pieces: AsyncIterator[bytes]


async def uploaded_file(request: Request) -> UploadedFile:
    """The only file of this request; other fields are ignored. Raises `Refused`."""
    reader = _Reader(request)
    while reader.found is None:
        if not await reader.more():
            raise _invalid("There is no file in the request; send one as the field `file`.")
    name, mime = reader.found
    return UploadedFile(name, mime, reader.pieces())


class _Reader:
    """Feeds the parser, and buffers the file's bytes until they are read."""

    def __init__(self, request: Request) -> None:
        kind, options = parse_options_header(request.headers.get("content-type"))
        if kind != b"multipart/form-data" or b"boundary" not in options:
            raise _invalid("Send the file as multipart/form-data.")
        self._arriving = request.stream()
        self._headers: dict[bytes, bytes] = {}
        self._header = self._value = b""
        self._in_file = self._whole = False
        self._waiting: list[bytes] = []
        self.found: tuple[str, str] | None = None
        with raising(_invalid("The boundary of the multipart request is not valid."), FormParserError):
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._headers.clear,
                    "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value,
                    "on_header_end": self._on_header_end,
                    "on_headers_finished": self._on_headers,
                    "on_part_data": self._on_data,
                    "on_end": self._on_end,
                },
            )

    async def pieces(self) -> AsyncIterator[bytes]:
        while self._waiting or await self.more():
            waiting, self._waiting = self._waiting, []
            if waiting:
                yield b"".join(waiting)

    async def more(self) -> bool:
        """Read more of the request; false at its end."""
        try:
            chunk = await anext(self._arriving, b"")
            if chunk:
                self._parser.write(chunk)
        except (FormParserError, ClientDisconnect):
            raise _invalid("The upload is not valid multipart/form-data; send the file again.") from None
        if not chunk and not self._whole:
            raise _invalid("The upload was interrupted; send the file again.")
        return bool(chunk)

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[self._header.lower()] = self._value
        self._header = self._value = b""

    def _on_headers(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition"))
        self._in_file = b"filename" in options
        if not self._in_file:
            return
        if self.found is not None:
            raise _invalid("There is more than one file in the request; send them one by one.")
        mime, _ = parse_options_header(self._headers.get(b"content-type"))
        self.found = options[b"filename"].decode(errors="replace"), mime.decode("latin-1")

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self._waiting.append(data[start:end])

    def _on_end(self) -> None:
        self._whole = True


def _invalid(message: str) -> Refused:
    return Refused(400, "invalid_upload", message)
