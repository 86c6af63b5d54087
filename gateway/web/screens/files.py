"""Files: the workspace as a tree, each file shown, edited, moved and deleted, and its earlier versions."""

import asyncio
from dataclasses import dataclass, replace
from hashlib import sha256 as hash_of
from typing import Annotated

from fastapi import Depends, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from gateway.domain.conversation.diff import legible
from gateway.domain.files import locked_parts
from gateway.domain.principals import Label
from gateway.flow.labels import vouch as vouch_for
from gateway.store.files import files
from gateway.store.transcript import messages
from gateway.web.auth.access import OWNER, VISITOR, signed_in
from gateway.web.files import (
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
)
from gateway.web.http.bodies import uploaded_file
from gateway.web.http.errors import Refused
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site
from gateway.workspace.files.copies import zip_members, zipped
from gateway.workspace.files.paths import MAX_PATH_BYTES, READ_ONLY, WorkspaceError, WorkspacePath, folded
from gateway.workspace.files.tree import Listed, Workspace
from gateway.workspace.files.uploads import UPLOADS, mime_of

MAX_MARKED = 256 * 1024
"""Bytes of a Markdown file that is searched for locked text, to mark it in the tree."""


@dataclass(frozen=True, slots=True)
class Node(Listed):
    """A file or folder; a folder that is closed has no `branch`, `path` is empty if nothing can open it."""

    path: str
    locked: bool = False
    branch: "Branch | None" = None


@dataclass(frozen=True, slots=True)
class Branch:
    """The entries of a folder; `left_out` counts those that are not shown, and `label` is of the names."""

    nodes: tuple[Node, ...]
    left_out: int
    label: Label


async def branch(workspace: Workspace, folder: WorkspacePath, opened: tuple[str, ...] = ()) -> Branch:
    """The entries of a folder, folders first; those on the path `opened` have their own entries."""
    listing = await workspace.listing(str(folder))
    ordered = sorted(listing.entries, key=lambda entry: entry.kind != "folder")
    nodes = [await _node(workspace, folder, entry, opened) for entry in ordered]
    return Branch(tuple(nodes), listing.left_out, listing.label)


async def _node(workspace: Workspace, folder: WorkspacePath, entry: Listed, opened: tuple[str, ...]) -> Node:
    if entry.kind == "other":
        return Node(entry.name, entry.kind, entry.size, "")
    path = WorkspacePath((*folder.parts, entry.name))
    opens = entry.kind == "folder" and opened[:1] == (entry.name,)
    below = await branch(workspace, path, opened[1:]) if opens else None
    return Node(entry.name, entry.kind, entry.size, str(path), await _locked(workspace, path, entry), below)


async def _locked(workspace: Workspace, path: WorkspacePath, entry: Listed) -> bool:
    if entry.kind != "file" or entry.size > MAX_MARKED or not folded(entry.name).endswith(".md"):
        return False
    if folded(path.parts[0]) in READ_ONLY | {UPLOADS}:
        return False
    return bool(locked_parts(await workspace.content(str(path), MAX_MARKED) or b""))


HERE = "/files"
CHANGED = "{path} has changed since you opened it; nothing was saved. Copy your text, reload the page, and merge them."

screen = Screen(HERE, "Files", "folder", 31)

Asked = Annotated[str, Query(max_length=MAX_PATH_BYTES)]
Named = Annotated[str, Form(min_length=1, max_length=MAX_PATH_BYTES)]
Hash = Annotated[str, Form(max_length=64)]


@screen.get(HERE, dependencies=VISITOR)
async def page(request: Request, site: AtSite, path: Asked = "") -> Response:
    """The tree, and beside it a file or folder; the path of a deleted file redirects to its folder."""
    where, workspace = WorkspacePath.parse(path), site.files.workspace
    shown = await _file_or_folder(site, where)
    if shown is None:
        above = WorkspacePath(where.parents)
        return RedirectResponse(str(request.url.replace(path=HERE).include_query_params(path=str(above))), 303)
    folder = WorkspacePath(where.parents) if isinstance(shown, Preview) else where
    tree = await branch(workspace, WorkspacePath(()), where.parts)
    file = shown if isinstance(shown, Preview) else None
    extra = {"changeable": changeable(WorkspacePath((*folder.parts, "x")))}
    row = await site.database.read(lambda conn: files.get(conn, site.owner.id, str(where)))
    locked = row is not None and row.locked
    return site.screen(request, screen, "files.html", tree=tree, file=file, folder=folder, locked=locked, **extra)


@screen.get(f"{HERE}/tree", dependencies=OWNER)
async def below(site: AtSite, path: Asked) -> HTMLResponse:
    """The entries of one folder of the tree."""
    found = await branch(site.files.workspace, WorkspacePath.parse(path))
    return HTMLResponse(site.pages.piece("file_branch.html", tree=found, file=None))


@screen.get(f"{HERE}/picture", dependencies=OWNER)
async def picture(site: AtSite, path: Asked) -> Response:
    """A picture for the page; types that could run scripts are refused."""
    mime = picture_type(await site.files.workspace.content(path, 16) or b"")
    if not mime:
        raise Refused(404, "no_picture", f"{path} is not a picture that is shown here.")
    return await serve(site, path, mime, {})


@screen.get(f"{HERE}/download", dependencies=OWNER)
async def download(site: AtSite, path: Asked) -> Response:
    """One file, to be saved."""
    where = WorkspacePath.parse(path)
    return await serve(site, str(where), OCTETS, saved_as(where.name))


@screen.get(f"{HERE}/zip", dependencies=OWNER)
async def download_folder(site: AtSite, path: Asked = "") -> Response:
    """A folder with all below it, zipped while it is sent."""
    root = site.files.root
    members = await asyncio.to_thread(zip_members, root, path)
    name = f"{WorkspacePath.parse(path).name or 'workspace'}.zip"
    return StreamingResponse(zipped(root, path, members), media_type=OCTETS, headers={**SANDBOX, **saved_as(name)})


@screen.post(f"{HERE}/save", status_code=204, dependencies=OWNER)
async def save(site: AtSite, path: Named, content: Annotated[str, Form()] = "", sha256: Hash = "") -> None:
    """Write what was edited, if the file is still as it was read; without a hash, a new file.

    Its label stays: an edit doesn't make other people's text trusted.
    """
    if len(content.encode("utf-8", "replace")) > 2 * MAX_SHOWN:
        raise Refused(413, "too_large", "The text is too long for this form; use an editor or `supaclaw files edit`.")
    where, workspace, mime = _changeable_path(path), site.files.workspace, mime_of(path)

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


@screen.post(f"{HERE}/upload", status_code=204, dependencies=[Depends(replace(signed_in, body=MAX_UPLOAD))])
async def upload(request: Request, site: AtSite, path: Asked = "") -> None:
    """Put a file into a folder; it never overwrites one."""
    file = await uploaded_file(request)
    name = WorkspacePath.parse(file.name.replace("\\", "/").rpartition("/")[2])
    where = _changeable_path("/".join((*WorkspacePath.parse(path).parts, *name.parts)))
    await site.files.uploads.place(site.owner.id, str(where), mime_of(where.name), file.pieces)


@screen.post(f"{HERE}/move", status_code=204, dependencies=OWNER)
async def move(site: AtSite, path: Named, to: Named) -> None:
    """Give a file another path, after a checkpoint."""
    where, target = _changeable_path(path), _changeable_path(to)
    await _checkpoint(site, "before a move")
    await site.files.workspace.move(str(where), str(target), Label.OWNER, mime_of(to), unlocked=True)


@screen.post(f"{HERE}/delete", status_code=204, dependencies=OWNER)
async def delete(site: AtSite, path: Named) -> None:
    """Delete a file, after a checkpoint."""
    where = _changeable_path(path)
    await asyncio.to_thread(site.files.workspace.size, str(where))
    await _checkpoint(site, "before a deletion")
    await site.files.workspace.remove(str(where), unlocked=True)


@screen.post(f"{HERE}/unlock", status_code=204, dependencies=OWNER)
async def unlock(site: AtSite, path: Named, password: Annotated[str, Form(min_length=1, max_length=1000)]) -> None:
    """Read a file that needs a password, which is used once and kept nowhere."""
    await site.files.unlock(site.owner.id, str(WorkspacePath.parse(path)), password)


@screen.post(f"{HERE}/vouch", status_code=204, dependencies=OWNER)
async def vouch(site: AtSite, path: Named, sha256: Hash) -> None:
    """Label exactly the content that was shown as the owner's own."""
    piece = await asyncio.to_thread(site.files.workspace.head, str(_changeable_path(path)), 1)
    if piece is None or piece.sha256 != sha256:
        raise Refused(409, "changed", "The file has changed since you opened it; look at it again.")
    owner = site.owner.id
    await site.database.run(lambda tx: vouch_for(tx, owner, {path: sha256}, Label.OWNER))


def _changeable_path(path: str) -> WorkspacePath:
    where = WorkspacePath.parse(path)
    if not changeable(where):
        raise WorkspaceError("read_only", f"{where} belongs to the gateway, which would write it again.")
    return where


async def _file_or_folder(site: Site, where: WorkspacePath) -> Preview | WorkspacePath | None:
    """A file, or the folder itself; None if there is neither."""
    try:
        if where.parts:
            return await preview(site.files.workspace, where)
    except WorkspaceError as error:
        if error.code == "not_found":
            return None
        await site.files.workspace.listing(str(where))
    return where


async def _checkpoint(site: Site, reason: str) -> None:
    last = await site.database.read(messages.last_id)
    await site.files.checkpoints.create(reason, last)


@screen.get(f"{HERE}/checkpoints", dependencies=VISITOR)
async def versions(request: Request, site: AtSite) -> Response:
    """The last checkpoints."""
    rows = await site.files.checkpoints.listing(50)
    return site.screen(request, screen, "checkpoints.html", rows=rows)


@screen.post(f"{HERE}/checkpoints", status_code=204, dependencies=OWNER)
async def create(site: AtSite) -> None:
    """Make one now, if anything has changed."""
    await _checkpoint(site, "asked")


@screen.get(f"{HERE}/checkpoints/{{id}}", dependencies=OWNER)
async def differences(site: AtSite, id: str) -> HTMLResponse:
    """The files that have changed since a checkpoint."""
    rows = await site.files.checkpoints.diff(id)
    return HTMLResponse(site.pages.piece("checkpoint.html", id=id, rows=rows[:200], more=len(rows[200:])))


@screen.get(f"{HERE}/checkpoints/{{id}}/lines", dependencies=OWNER)
async def lines(site: AtSite, id: str, path: Asked) -> HTMLResponse:
    """The lines of one file that have changed since a checkpoint."""
    text = legible(await site.files.checkpoints.lines(id, str(WorkspacePath.parse(path))))
    return HTMLResponse(site.pages.piece("checkpoint_lines.html", text=text))


@screen.post(f"{HERE}/checkpoints/{{id}}/restore", status_code=204, dependencies=OWNER)
async def restore(site: AtSite, id: str, path: Annotated[str, Form(max_length=MAX_PATH_BYTES)] = "") -> None:
    """Restore all files or one; the current state is kept as a checkpoint."""
    done = await site.files.checkpoints.restore(site.database, site.clock, id, path or None)
    if done.left:
        raise Refused(409, "left", f"Not restored, as no checkpoint has what is there now: {', '.join(done.left[:5])}")
