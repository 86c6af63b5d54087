"""The attachments of a message, for the page and as JSON."""

from dataclasses import dataclass

from gateway.domain.conversation.attachments import Attached
from gateway.domain.ids import FileId
from gateway.domain.json import Json


@dataclass(frozen=True, slots=True)
class Chip:
    """A file on the page; without `id` it cannot be downloaded. `remark` describes its state."""

    id: FileId | None
    name: str
    icon: str
    remark: str
    failed: bool
    picture: bool


def chip(file: Attached) -> Chip:
    """The chip for a file. An image is shown itself, so a remark about missing text is left out."""
    picture = bool(file.id and file.view_path) and file.mime.startswith("image/")
    remark = " · ".join(filter(None, (readable(file.size), "" if picture else file.problem)))
    icon = {"image": "image", "audio": "audio-lines"}.get(file.mime.partition("/")[0], "file")
    return Chip(file.id, file.name, icon, remark, file.state == "failed", picture)


def readable(size: int) -> str:
    """A size in bytes, for people; empty if it is unknown."""
    if size < 1000:
        return f"{size} B" if size else ""
    number, unit = (size / 1e3, "kB") if size < 999_500 else (size / 1e6, "MB")
    return f"{number:.1f} {unit}" if number < 9.95 else f"{number:.0f} {unit}"


def as_json(file: Attached) -> dict[str, Json]:
    """The file as an entry of `files` in JSON."""
    return {
        "id": str(file.id) if file.id else None,
        "state": file.state,
        "name": file.name,
        "mime": file.mime,
        "size": file.size,
        "path": file.path,
        "pages": file.pages,
        "description": file.description,
        "problem": file.problem,
    }
