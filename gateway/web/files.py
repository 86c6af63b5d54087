"""Uploads and downloads: stored as they arrive, served so that no browser executes them."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.domain.conversation.inbound import Attachment
from gateway.domain.ids import FileId, PrincipalId
from gateway.flow.files.uploads import UploadRefused
from gateway.store.transcript import files
from gateway.store.transcript.files import FileRow
from gateway.web.auth.access import Requirement
from gateway.web.http.errors import Refused
from gateway.web.http.multipart import UploadedFile, uploaded_file
from gateway.web.site import AtSite, Site
from gateway.workspace.files.access import explained_errors, open_file
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath

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


async def keep(site: Site, whose: PrincipalId, file: UploadedFile, origin: str) -> FileRow:
    """Store somebody's file; raises `Refused`."""
    try:
        return await site.backend.uploads.keep(whose, file.name, _type(file.mime), file.pieces, origin=origin)
    except UploadRefused as refused:
        raise too_large(refused) from None


async def attachments_for(site: Site, ids: Sequence[UUID]) -> tuple[Attachment, ...]:
    """These stored files as attachments of a message; raises `Refused` for one that is not the owner's."""
    return tuple([(await _row(site, id, status=400)).announced for id in dict.fromkeys(ids)])


def add_routes(router: APIRouter, path: str, origin: str, *, sends: Requirement, reads: Requirement) -> None:
    """Add the routes that take a file and give it back."""

    @router.post(
        path, status_code=201, dependencies=[Depends(replace(sends, body=MAX_UPLOAD))], openapi_extra=_ONE_FILE
    )
    async def upload(request: Request, site: AtSite) -> Response:
        """Upload one file; put its `id` into the `files` of a message."""
        length = request.headers.get("content-length", "")
        try:
            site.backend.uploads.check(int(length) - _ENVELOPE if length.isdecimal() else None)
        except UploadRefused as refused:
            raise too_large(refused) from None
        row = await keep(site, site.backend.owner.id, await uploaded_file(request), origin)
        body = {"id": str(row.id), "name": row.name, "mime": row.mime, "size": row.size, "path": row.path}
        return JSONResponse(body, 201)

    @router.get(f"{path}/{{file_id}}", dependencies=[Depends(reads)])
    async def download(site: AtSite, file_id: UUID) -> Response:
        """Download the file."""
        row = await _row(site, file_id)
        return await serve(site, row.path, OCTETS, saved_as(row.name))

    @router.get(f"{path}/{{file_id}}/view", dependencies=[Depends(reads)])
    async def view(site: AtSite, file_id: UUID) -> Response:
        """The file's preview, a JPEG of screen size; 404 if there is none, or not yet."""
        row = await _row(site, file_id)
        return await serve(site, row.view_path, "image/jpeg", {"Cache-Control": "private, max-age=3600"})


def _type(claimed: str) -> str:
    """The claimed type if it is well-formed, else empty: it is shown to the model."""
    return claimed if _MIME.fullmatch(claimed) else ""


def too_large(refused: UploadRefused) -> Refused:
    """The error of a file that isn't taken."""
    return Refused(413, "file_refused", f"The file was refused: {str(refused).removesuffix('.')}.")


async def _row(site: Site, id: UUID, *, status: int = 404) -> FileRow:
    async with site.backend.database.connection() as conn:
        row = await files.by_id(conn, site.backend.owner.id, FileId(id))
    if row is None:
        raise Refused(status, "unknown_file", f"There is no file {id}.", param="files" if status == 400 else None)
    return row


def saved_as(name: str) -> dict[str, str]:
    """The header that makes a browser save the file instead of showing it."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


async def serve(site: Site, path: str, mime: str, headers: dict[str, str]) -> Response:
    """A file of the owner's, in a sandbox whatever it is; raises `Refused`."""
    try:
        file, size = await asyncio.to_thread(_opened, site.backend.files, WorkspacePath.parse(path))
    except WorkspaceError as exc:
        raise Refused(404, exc.code, "The file no longer exists.") from None
    return _FromDisk(file, size, mime, {**SANDBOX, **headers})


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


async def _pieces(file: BinaryIO, left: int) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(file.read, min(_CHUNK, left)):
        left -= len(piece)
        yield piece
