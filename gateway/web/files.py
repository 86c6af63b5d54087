"""Files: uploads, downloads that no browser executes, and previews for the page."""

import asyncio
import mimetypes
import os
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.domain.conversation.inbound import Attachment
from gateway.domain.errors import required
from gateway.domain.files import PLAYABLE, locked_parts
from gateway.domain.ids import FileId, PrincipalId
from gateway.domain.principals import Label
from gateway.domain.work.todo_lists import FILE
from gateway.store.files import files
from gateway.store.files.files import FileRow
from gateway.web.auth.access import Requirement
from gateway.web.http.bodies import UploadedFile, uploaded_file
from gateway.web.http.errors import Refused
from gateway.web.markup.figures import csv_table
from gateway.web.markup.markdown import Markdown
from gateway.web.site import AtSite, Site
from gateway.workspace.files.access import explained_errors, open_file
from gateway.workspace.files.pages import Piece
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath, folded
from gateway.workspace.files.tree import Workspace

MAX_FILES = 20
"""The most files of one message."""
_CHUNK = 256 * 1024
MAX_UPLOAD = 2**31
"""For a streamed upload; the file limit is checked here, with a better error."""
_ENVELOPE = 64 * 1024
"""The most bytes of a request besides the file."""
_MIME = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,90}", re.IGNORECASE)
_FORM = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
_ONE_FILE = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}
OCTETS = "application/octet-stream"
SANDBOX = {"Content-Security-Policy": "sandbox; default-src 'none'"}


async def keep(site: Site, whose: PrincipalId, file: UploadedFile, origin: str, *, apart: bool = False) -> FileRow:
    """Store a file of this principal; raises `UploadRefused`. `apart`: as of `Uploads.keep`."""
    mime = file.mime if _MIME.fullmatch(file.mime) else ""  # a claim that is shown to the model
    return await site.files.uploads.keep(whose, file.name, mime, file.pieces, origin=origin, apart=apart)


async def attachments_for(site: Site, ids: Sequence[UUID]) -> tuple[Attachment, ...]:
    """Stored files as attachments of a message; raises `Refused` for one that is not the owner's."""
    return tuple([(await _row(site, id, status=400)).announced for id in dict.fromkeys(ids)])


def add_routes(router: APIRouter, path: str, origin: str, *, sends: Requirement, reads: Requirement) -> None:
    """Add the routes that upload and download files."""

    @router.post(
        path, status_code=201, dependencies=[Depends(replace(sends, body=MAX_UPLOAD))], openapi_extra=_ONE_FILE
    )
    async def upload(request: Request, site: AtSite) -> Response:
        """Upload a file; put its `id` into the `files` of a message."""
        length = request.headers.get("content-length", "")
        site.files.uploads.check(int(length) - _ENVELOPE if length.isdecimal() else None)
        row = await keep(site, site.owner.id, await uploaded_file(request), origin)
        body = {"id": str(row.id), "name": row.name, "mime": row.mime, "size": row.size, "path": row.path}
        return JSONResponse(body, 201)

    @router.get(f"{path}/{{file_id}}", dependencies=[Depends(reads)])
    async def download(site: AtSite, file_id: UUID) -> Response:
        """Download a file."""
        row = await _row(site, file_id)
        return await serve(site, row.path, OCTETS, saved_as(row.name))

    @router.get(f"{path}/{{file_id}}/view", dependencies=[Depends(reads)])
    async def view(site: AtSite, file_id: UUID) -> Response:
        """Get a file's preview, a JPEG of screen size; 404 if there is none, or not yet."""
        row = await _row(site, file_id)
        return await serve(site, row.view_path, "image/jpeg", {"Cache-Control": "private, max-age=3600"})

    @router.get(f"{path}/{{file_id}}/sound", dependencies=[Depends(reads)])
    async def sound(site: AtSite, file_id: UUID) -> Response:
        """Get a recording to play it; 404 for any other file."""
        row = await _row(site, file_id)
        if row.mime not in PLAYABLE:
            raise Refused(404, "unknown_file", f"The file {file_id} is not a recording that can be played.")
        file, _ = await _open(site, row.path)
        return _Recording(file, row.mime)


async def _row(site: Site, id: UUID, *, status: int = 404) -> FileRow:
    row = await site.database.read(lambda conn: files.by_id(conn, site.owner.id, FileId(id)))
    param = "files" if status == 400 else None
    return required(row, Refused(status, "unknown_file", f"There is no file {id}.", param=param))


def saved_as(name: str) -> dict[str, str]:
    """The header that makes a browser save a file instead of showing it."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


async def serve(site: Site, path: str, mime: str, headers: dict[str, str]) -> Response:
    """Respond with a file of the owner, in a sandbox whatever its type; raises `Refused`."""
    return _FromDisk(*await _open(site, path), mime, {**SANDBOX, **headers})


async def _open(site: Site, path: str) -> tuple[BinaryIO, int]:
    try:
        return await asyncio.to_thread(_opened, site.files.root, WorkspacePath.parse(path))
    except WorkspaceError as exc:
        raise Refused(404, exc.code, "The file no longer exists.") from None


def _opened(root: Path, path: WorkspacePath) -> tuple[BinaryIO, int]:
    with explained_errors(path), open_file(root, path) as descriptor:
        return os.fdopen(os.dup(descriptor), "rb"), os.fstat(descriptor).st_size


class _FromDisk(StreamingResponse):
    """Streams an open file, and closes it with the response."""

    def __init__(self, file: BinaryIO, size: int, mime: str, headers: dict[str, str]) -> None:
        self._file = file
        super().__init__(_pieces(file, size), media_type=mime, headers={**headers, "Content-Length": str(size)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


class _Recording(FileResponse):
    """Sends an open file, or the ranges of it that are asked for, and closes it: Safari plays nothing without ranges.

    It is opened again by its descriptor, so it stays the file that was checked.
    """

    def __init__(self, file: BinaryIO, mime: str) -> None:
        self._file = file
        number = file.fileno()
        super().__init__(f"/dev/fd/{number}", headers=SANDBOX, media_type=mime, stat_result=os.fstat(number))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._file:
            await super().__call__(scope, receive, send)


async def _pieces(file: BinaryIO, left: int) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, min(_CHUNK, left)):
        left -= len(piece)
        yield piece


MAX_SHOWN = 256 * 1024
"""Bytes of a text that are shown; what is longer can't be edited here."""
MAX_PICTURE = 20 * 1024 * 1024

_HEAD = 16
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


@dataclass(frozen=True, slots=True)
class Preview:
    """`locked` are ranges of lines; a file without `sha256` is too large to be read.

    `changeable` is false where only the gateway writes, `editable` also if the text isn't here as a whole.
    """

    path: str
    name: str
    size: int
    mime: str
    kind: Literal["markdown", "text", "picture", "other"]
    sha256: str
    label: Label
    changeable: bool
    text: str = ""
    html: str = ""
    whole: bool = True
    locked: tuple[str, ...] = ()

    @property
    def editable(self) -> bool:
        """Whether a form can hold its text without changing it."""
        return self.changeable and self.whole and self.kind in {"markdown", "text"} and even_breaks(self.text)


async def preview(workspace: Workspace, where: WorkspacePath) -> Preview:
    """Read a file for the page; raises `WorkspaceError`, with code `not_found` if there is no such file."""
    path, name = str(where), where.name
    mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
    try:
        piece = await asyncio.to_thread(workspace.head, path, MAX_SHOWN)
    except WorkspaceError as error:
        if error.code != "too_large":
            raise
        size = await asyncio.to_thread(workspace.size, path)
        return Preview(path, name, size, mime, "other", "", Label.UNTRUSTED, changeable(where))
    piece = required(piece, WorkspaceError("not_found", f"There is no file {path}."))
    label = await workspace.labels.of(path, piece.sha256)
    found = Preview(path, name, piece.size, mime, "other", piece.sha256, label, changeable(where))
    if (shown := picture_type(piece.data)) and piece.size <= MAX_PICTURE:
        return replace(found, mime=shown, kind="picture")
    if (text := _text(piece)) is None:
        return found
    found = replace(found, text=text, whole=piece.size <= MAX_SHOWN, locked=tuple(locked_lines(piece.data)))
    if folded(name).endswith((".csv", ".tsv")) and (table := await asyncio.to_thread(csv_table, text)):
        return replace(found, kind="markdown", html=table)
    if not folded(name).endswith((".md", ".markdown")):
        return replace(found, kind="text")
    return replace(found, kind="markdown", html=await asyncio.to_thread(Markdown().html, text))


def changeable(where: WorkspacePath) -> bool:
    """Whether the owner may change it; other files are written by the gateway."""
    return bool(where.parts) and not where.read_only and folded(str(where)) != FILE


def picture_type(head: bytes) -> str:
    """The type of a picture without scripts, by its first bytes; empty for all else, SVG included."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _PICTURES.items() if head[:_HEAD].startswith(magic)), "")


def even_breaks(text: str) -> bool:
    """Whether all its lines end alike: a browser's form makes them the same."""
    return text.count("\r") == text.count("\r\n") and text.count("\r\n") in {0, text.count("\n")}


def as_before(text: str, before: str) -> str:
    """A form's text with the line breaks of the text `before`."""
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if "\r\n" in before else plain


def locked_lines(data: bytes) -> list[str]:
    """The ranges of locked lines, which the agent can't change."""
    ranges, start = list[str](), 0
    for part in locked_parts(data):
        start = data.index(part, start)
        first, last = data.count(b"\n", 0, start) + 1, data.count(b"\n", 0, start + len(part.rstrip(b"\n"))) + 1
        ranges.append(str(first) if first == last else f"{first}–{last}")
        start += len(part)
    return ranges


def _text(piece: Piece) -> str | None:
    """The text, without a character that is cut at the end; None if it isn't text."""
    try:
        text = piece.data.decode()
    except UnicodeDecodeError as error:
        if piece.size <= len(piece.data) or error.start < len(piece.data) - 3:
            return None
        text = piece.data[: error.start].decode()
    return None if "\0" in text else text
