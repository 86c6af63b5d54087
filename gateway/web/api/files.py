"""Files of the conversation, for programs."""

from uuid import UUID

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from gateway.domain.scopes import Scope
from gateway.web import files
from gateway.web.access import needs
from gateway.web.api.messages import CHANNEL
from gateway.web.site import AtSite

_FORM = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
_ONE_FILE = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}}

router = APIRouter()


@router.post("/api/files", status_code=201, dependencies=[Depends(needs(Scope.CHAT))], openapi_extra=_ONE_FILE)
async def upload(request: Request, site: AtSite) -> Response:
    """Upload one file; put its `id` into the `files` of a message."""
    return JSONResponse(await files.receive(request, site, CHANNEL), 201)


@router.get("/api/files/{file_id}", dependencies=[Depends(needs(Scope.READ))])
async def download(site: AtSite, file_id: UUID) -> Response:
    """Download the file."""
    return await files.download(site, file_id)


@router.get("/api/files/{file_id}/view", dependencies=[Depends(needs(Scope.READ))])
async def view(site: AtSite, file_id: UUID) -> Response:
    """The file's preview, a JPEG of screen size; 404 if there is none, or not yet."""
    return await files.view(site, file_id)
