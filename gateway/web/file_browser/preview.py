"""One file as the page shows it: rendered, as text, as a picture, or by its size alone."""

import asyncio
import mimetypes
from dataclasses import dataclass
from typing import Literal

from gateway.domain.principals import Label
from gateway.domain.text.locks import locked_parts
from gateway.domain.work.plans import FILE
from gateway.web.render import Markdown
from gateway.workspace.files.pages import Piece
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath, folded
from gateway.workspace.files.tree import Workspace

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
        """Whether a form can hold its text, and give it back as it was."""
        return self.changeable and self.whole and self.kind in {"markdown", "text"} and even_breaks(self.text)


async def preview(workspace: Workspace, where: WorkspacePath) -> Preview:
    """Raises `WorkspaceError`, with code `not_found` if there is no such file."""
    path, name = str(where), where.name
    mime = mimetypes.guess_type(name)[0] or "application/octet-stream"
    try:
        piece = await asyncio.to_thread(workspace.head, path, MAX_SHOWN)
    except WorkspaceError as error:
        if error.code != "too_large":
            raise
        size = await asyncio.to_thread(workspace.size, path)
        return Preview(path, name, size, mime, "other", "", Label.UNTRUSTED, changeable(where))
    if piece is None:
        raise WorkspaceError("not_found", f"There is no file {path}.")
    label = await workspace.labels.of(path, piece.sha256)
    if (shown := picture_type(piece.data)) and piece.size <= MAX_PICTURE:
        return Preview(path, name, piece.size, shown, "picture", piece.sha256, label, changeable(where))
    if (text := _text(piece)) is None:
        return Preview(path, name, piece.size, mime, "other", piece.sha256, label, changeable(where))
    prose = folded(name).endswith((".md", ".markdown"))
    return Preview(
        *(path, name, piece.size, mime, "markdown" if prose else "text", piece.sha256, label, changeable(where)),
        text=text,
        html=await asyncio.to_thread(Markdown().html, text) if prose else "",
        whole=piece.size <= MAX_SHOWN,
        locked=tuple(locked_lines(piece.data)),
    )


def changeable(where: WorkspacePath) -> bool:
    """Whether the owner may change it; the gateway rewrites the others."""
    return bool(where.parts) and not where.read_only and folded(str(where)) != FILE


def picture_type(head: bytes) -> str:
    """The type of a picture that can't run anything, by its first bytes; empty for all else, SVG too."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _PICTURES.items() if head[:_HEAD].startswith(magic)), "")


def even_breaks(text: str) -> bool:
    """Whether its lines end in one way: a browser's form makes all of them the same."""
    return text.count("\r") == text.count("\r\n") and text.count("\r\n") in {0, text.count("\n")}


def as_before(text: str, before: str) -> str:
    """What a form sent, with the line breaks that the text had."""
    plain = text.replace("\r\n", "\n")
    return plain.replace("\n", "\r\n") if "\r\n" in before else plain


def locked_lines(data: bytes) -> list[str]:
    """The ranges of lines that the agent can't change."""
    ranges, start = list[str](), 0
    for part in locked_parts(data):
        start = data.index(part, start)
        first, last = data.count(b"\n", 0, start) + 1, data.count(b"\n", 0, start + len(part.rstrip(b"\n"))) + 1
        ranges.append(str(first) if first == last else f"{first}–{last}")
        start += len(part)
    return ranges


def _text(piece: Piece) -> str | None:
    """None if it isn't text; a character that is cut at the end is left out."""
    try:
        text = piece.data.decode()
    except UnicodeDecodeError as error:
        if piece.size <= len(piece.data) or error.start < len(piece.data) - 3:
            return None
        text = piece.data[: error.start].decode()
    return None if "\0" in text else text
