"""Files: the workspace as a tree, each file shown, edited, moved and deleted, and its earlier versions."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256 as hash_of
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from gateway.domain.conversation.diff import legible
from gateway.domain.files import locked_parts
from gateway.domain.principals import Label
from gateway.flow.files.uploads import UploadRefused
from gateway.flow.labels import vouch as vouch_for
from gateway.store.transcript import messages
from gateway.web.auth.access import by_cookie, public, signed_in
from gateway.web.components.files import (
    MAX_SHOWN,
    MAX_UPLOAD,
    OCTETS,
    SANDBOX,
    Preview,
    as_before,
    changeable,
    picture_type,
    preview,
    saved_as,
    serve,
    too_large,
)
from gateway.web.http.bodies import uploaded_file
from gateway.web.http.errors import Refused
from gateway.web.live.entries import readable_size
from gateway.web.pages import Nav, Screen
from gateway.web.site import AtSite, Site
from gateway.workspace.files.copies import zip_members, zipped
from gateway.workspace.files.paths import MAX_PATH_BYTES, READ_ONLY, WorkspaceError, WorkspacePath, folded
from gateway.workspace.files.tree import Listed, Workspace
from gateway.workspace.files.uploads import UPLOADS, mime_of

MAX_MARKED = 256 * 1024
"""Bytes of a Markdown file that is searched for locked text, to mark it in the tree."""


@dataclass(frozen=True, slots=True)
class Node:
    """A file or folder; a folder that is closed has no `branch`, `path` is empty if nothing can open it."""

    path: str
    name: str
    kind: Literal["file", "folder", "other"]
    size: int
    locked: bool = False
    branch: "Branch | None" = None


@dataclass(frozen=True, slots=True)
class Branch:
    """What is in one folder; `left_out` counts entries beyond the first, and `label` is of the names."""

    nodes: tuple[Node, ...]
    left_out: int
    label: Label


async def branch(workspace: Workspace, folder: WorkspacePath, opened: tuple[str, ...] = ()) -> Branch:
    """The entries of a folder, folders first; those on the way to what is `opened` have their own."""
    listing = await workspace.listing(str(folder))
    ordered = sorted(listing.entries, key=lambda entry: entry.kind != "folder")
    nodes = [await _node(workspace, folder, entry, opened) for entry in ordered]
    return Branch(tuple(nodes), listing.left_out, listing.label)


async def _node(workspace: Workspace, folder: WorkspacePath, entry: Listed, opened: tuple[str, ...]) -> Node:
    if entry.kind == "other":
        return Node("", entry.name, entry.kind, entry.size)
    path = WorkspacePath((*folder.parts, entry.name))
    below = (
        await branch(workspace, path, opened[1:]) if entry.kind == "folder" and opened[:1] == (entry.name,) else None
    )
    return Node(str(path), entry.name, entry.kind, entry.size, await _locked(workspace, path, entry), below)


async def _locked(workspace: Workspace, path: WorkspacePath, entry: Listed) -> bool:
    if entry.kind != "file" or entry.size > MAX_MARKED or not folded(entry.name).endswith(".md"):
        return False
    if folded(path.parts[0]) in READ_ONLY | {UPLOADS}:
        return False
    return bool(locked_parts(await workspace.content(str(path), MAX_MARKED) or b""))


HERE = "/files"
CHANGED = "{path} has changed since you opened it; nothing was saved. Copy your text, reload the page, and merge them."

router = APIRouter()
screen = Screen(Nav(HERE, "Files", "folder", 8), router)

OWNER = [Depends(signed_in)]
Asked = Annotated[str, Query(max_length=MAX_PATH_BYTES)]
Named = Annotated[str, Form(min_length=1, max_length=MAX_PATH_BYTES)]
Hash = Annotated[str, Form(max_length=64)]


@router.get(HERE, dependencies=[Depends(public)])
async def page(request: Request, site: AtSite, path: Asked = "") -> Response:
    """The tree, and beside it a file or folder; what is gone leads to the folder it was in."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    with _told():
        where, workspace = WorkspacePath.parse(path), site.backend.workspace
        shown = await _shown(site, where)
        if shown is None:
            above = WorkspacePath(where.parents)
            return RedirectResponse(str(request.url.replace(path=HERE).include_query_params(path=str(above))), 303)
        folder = WorkspacePath(where.parents) if isinstance(shown, Preview) else where
        tree = await branch(workspace, WorkspacePath(()), where.parts)
    file, known = shown if isinstance(shown, Preview) else None, changeable(WorkspacePath((*folder.parts, "x")))
    return site.screen(
        request, screen.nav, "files.html", tree=tree, file=file, folder=folder, readable=readable_size, changeable=known
    )


@router.get(f"{HERE}/tree", dependencies=OWNER)
async def below(site: AtSite, path: Asked) -> HTMLResponse:
    """What is in one folder of the tree."""
    with _told():
        found = await branch(site.backend.workspace, WorkspacePath.parse(path))
    return HTMLResponse(site.pages.piece("file_branch.html", tree=found, file=None))


@router.get(f"{HERE}/picture", dependencies=OWNER)
async def picture(site: AtSite, path: Asked) -> Response:
    """A picture for the page; of what could run, nothing is served."""
    with _told():
        mime = picture_type(await site.backend.workspace.content(path, 16) or b"")
    if not mime:
        raise Refused(404, "no_picture", f"{path} is not a picture that is shown here.")
    return await serve(site, path, mime, {})


@router.get(f"{HERE}/download", dependencies=OWNER)
async def download(site: AtSite, path: Asked) -> Response:
    """One file, to be saved."""
    with _told():
        where = WorkspacePath.parse(path)
    return await serve(site, str(where), OCTETS, saved_as(where.name))


@router.get(f"{HERE}/zip", dependencies=OWNER)
async def download_folder(site: AtSite, path: Asked = "") -> Response:
    """A folder and all below it, zipped while it is sent."""
    root = site.backend.files
    with _told():
        files = await asyncio.to_thread(zip_members, root, path)
    name = f"{WorkspacePath.parse(path).name or 'workspace'}.zip"
    return StreamingResponse(zipped(root, path, files), media_type=OCTETS, headers={**SANDBOX, **saved_as(name)})


@router.post(f"{HERE}/save", status_code=204, dependencies=OWNER)
async def save(site: AtSite, path: Named, content: Annotated[str, Form()] = "", sha256: Hash = "") -> None:
    """Write what was edited, if the file is still as it was read; without a hash, a new file.

    It stays trusted no more than before: a word changed doesn't make others' text the owner's.
    """
    if len(content.encode("utf-8", "replace")) > 2 * MAX_SHOWN:
        raise Refused(413, "too_large", "The text is too long for this form; use an editor or `supaclaw files edit`.")
    with _told():
        where, workspace, mime = _own(path), site.backend.workspace, mime_of(path)

        def edited(text: str) -> str:
            if hash_of(text.encode()).hexdigest() != sha256:
                raise Refused(409, "changed", CHANGED.format(path=where))
            return as_before(content, text)

        if sha256:
            await workspace.update(str(where), edited, Label.OWNER, mime, unlocked=True)
        elif await workspace.content(str(where), 1) is not None:
            raise Refused(409, "exists", f"{where} exists already; nothing was changed.")
        else:
            await workspace.write(str(where), as_before(content, ""), Label.OWNER, mime, unlocked=True)


@router.post(f"{HERE}/upload", status_code=204, dependencies=[Depends(replace(signed_in, body=MAX_UPLOAD))])
async def upload(request: Request, site: AtSite, path: Asked = "") -> None:
    """Put a file into a folder; it never overwrites one."""
    file = await uploaded_file(request)
    with _told():
        name = WorkspacePath.parse(file.name.replace("\\", "/").rpartition("/")[2])
        where = _own("/".join((*WorkspacePath.parse(path).parts, *name.parts)))
        try:
            await site.backend.uploads.place(site.backend.owner.id, str(where), mime_of(where.name), file.pieces)
        except UploadRefused as refused:
            raise too_large(refused) from None


@router.post(f"{HERE}/move", status_code=204, dependencies=OWNER)
async def move(site: AtSite, path: Named, to: Named) -> None:
    """Give a file another path, after a checkpoint."""
    with _told():
        where, target = _own(path), _own(to)
        await _keep(site, "before a move")
        await site.backend.workspace.move(str(where), str(target), Label.OWNER, mime_of(to), unlocked=True)


@router.post(f"{HERE}/delete", status_code=204, dependencies=OWNER)
async def delete(site: AtSite, path: Named) -> None:
    """Delete a file, after a checkpoint."""
    with _told():
        where = _own(path)
        await asyncio.to_thread(site.backend.workspace.size, str(where))
        await _keep(site, "before a deletion")
        await site.backend.workspace.remove(str(where), unlocked=True)


@router.post(f"{HERE}/vouch", status_code=204, dependencies=OWNER)
async def vouch(site: AtSite, path: Named, sha256: Hash) -> None:
    """Take exactly the content that was shown for the owner's own words."""
    with _told():
        piece = await asyncio.to_thread(site.backend.workspace.head, str(_own(path)), 1)
    if piece is None or piece.sha256 != sha256:
        raise Refused(409, "changed", "The file has changed since you opened it; look at it again.")
    owner = site.backend.owner.id
    await site.backend.database.run(lambda tx: vouch_for(tx, owner, {path: sha256}, Label.OWNER))


def _own(path: str) -> WorkspacePath:
    where = WorkspacePath.parse(path)
    if not changeable(where):
        raise WorkspaceError("read_only", f"{where} belongs to the gateway, which would write it again.")
    return where


async def _shown(site: Site, where: WorkspacePath) -> Preview | WorkspacePath | None:
    """A file, or the folder itself; None if there is neither."""
    try:
        if where.parts:
            return await preview(site.backend.workspace, where)
    except WorkspaceError as error:
        if error.code == "not_found":
            return None
        await site.backend.workspace.listing(str(where))
    return where


async def _keep(site: Site, reason: str) -> None:
    async with site.backend.database.connection() as conn:
        last = await messages.last_id(conn)
    await site.backend.checkpoints.create(reason, last)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except WorkspaceError as error:
        raise Refused(404 if error.code == "not_found" else 409, error.code, str(error), param="path") from error


@router.get(f"{HERE}/checkpoints", dependencies=[Depends(public)])
async def versions(request: Request, site: AtSite) -> Response:
    """The last checkpoints."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    rows = await site.backend.checkpoints.listing(50)
    return site.screen(request, screen.nav, "checkpoints.html", rows=rows)


@router.post(f"{HERE}/checkpoints", status_code=204, dependencies=OWNER)
async def create(site: AtSite) -> None:
    """Make one now, if anything has changed."""
    await _keep(site, "asked")


@router.get(f"{HERE}/checkpoints/{{id}}", dependencies=OWNER)
async def differences(site: AtSite, id: str) -> HTMLResponse:
    """What has changed since then."""
    rows = await site.backend.checkpoints.diff(id)
    return HTMLResponse(site.pages.piece("checkpoint.html", id=id, rows=rows[:200], more=len(rows[200:])))


@router.get(f"{HERE}/checkpoints/{{id}}/lines", dependencies=OWNER)
async def lines(site: AtSite, id: str, path: Asked) -> HTMLResponse:
    """The lines of one file that have changed since then."""
    with _told():
        text = legible(await site.backend.checkpoints.lines(id, str(WorkspacePath.parse(path))))
    return HTMLResponse(site.pages.piece("checkpoint_lines.html", text=text))


@router.post(f"{HERE}/checkpoints/{{id}}/restore", status_code=204, dependencies=OWNER)
async def restore(site: AtSite, id: str, path: Annotated[str, Form(max_length=MAX_PATH_BYTES)] = "") -> None:
    """Restore all files or one; the current state is kept as a checkpoint."""
    backend = site.backend
    done = await backend.checkpoints.restore(backend.database, backend.clock, id, path or None)
    if done.left:
        raise Refused(
            409, "left", f"Not restored, for no checkpoint holds what is there now: {', '.join(done.left[:5])}"
        )
