"""Streams one file out of a multipart request, without buffering it whole."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from gateway.web.http.errors import Refused


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file being uploaded; name and type are the client's claims. `pieces` raises `Refused` if it breaks off."""

    name: str
    mime: str
    pieces: AsyncIterator[bytes]


async def uploaded_file(request: Request) -> UploadedFile:
    """The one file of this request; other fields are ignored. Raises `Refused`."""
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
        try:
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
        except FormParserError:
            raise _invalid("The boundary of the multipart request is not valid.") from None

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
