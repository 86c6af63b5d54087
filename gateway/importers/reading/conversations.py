"""What the sources of conversations have in common: times, and texts of several parts."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path
from zipfile import BadZipFile, ZipFile, is_zipfile

from pydantic import JsonValue

from gateway.domain.memory.imports import Damaged, Record
from gateway.importers.reading.files import Reader, head
from gateway.importers.reading.objects import Object, objects

_FIRST, _LAST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_KINDS = ("image", "audio", "video", "file", "document")


def time_of(value: JsonValue) -> datetime | None:
    """The time that seconds or milliseconds since 1970, or ISO text, stand for; None if it is none that can be."""
    try:
        match value:
            case bool() | None:
                return None
            case int() | float():
                at = datetime.fromtimestamp(value / 1000 if value > 1e11 else value, UTC)
            case str():
                at = datetime.fromisoformat(value)
                at = at if at.tzinfo else at.replace(tzinfo=UTC)
            case _:
                return None
    except (ValueError, OverflowError, OSError):
        return None
    return at if _FIRST <= at <= _LAST else None


def text_of(parts: JsonValue) -> str:
    """The text of a text, or of a list of texts and typed parts; a part that is no text is named in brackets."""
    if isinstance(parts, str):
        return parts.strip()
    if not isinstance(parts, list):
        return ""
    return "\n".join(text for part in parts if (text := _part(part))).strip()


def string(value: JsonValue) -> str:
    """The value if it is a text, else ""."""
    return value if isinstance(value, str) else ""


def read_with(
    pattern: str, conversation: Callable[[str, Object], Iterator[Record]]
) -> Callable[[Path, Reader], Iterator[Record]]:
    """What reads files of this name, by what makes records of each conversation in them, given its place."""

    def read(path: Path, reader: Reader) -> Iterator[Record]:
        with reader.chunks(path, pattern) as files:
            for name, read_chunk in files:
                for found in objects(name, read_chunk):
                    yield from [found] if isinstance(found, Damaged) else conversation(f"{name}:{found.line}", found)

    return read


def begins_with(path: Path, pattern: str, key: bytes) -> bool:
    """Whether the file, or one in the folder or ZIP whose name matches, has this key near its beginning."""
    if path.is_dir():
        return any(key in head(each) for each in path.iterdir() if fnmatch(each.name, pattern))
    if not is_zipfile(path):
        return key in head(path)
    try:
        with ZipFile(path) as archive:
            members: Sequence[str] = [name for name in archive.namelist() if fnmatch(Path(name).name, pattern)]
            return any(key in archive.open(name).read(64 << 10) for name in members)
    except (BadZipFile, OSError, RuntimeError):
        return False


def _part(part: JsonValue) -> str:
    if isinstance(part, str):
        return part.strip()
    if not isinstance(part, dict):
        return ""
    kind = string(part.get("type")) or string(part.get("content_type"))
    if kind in {"text", "input_text", "output_text", "audio_transcription"}:
        return string(part.get("text")).strip()
    if kind in {"thinking", "toolCall", "tool_use", "tool_result", "toolResult", "token_budget"}:
        return ""
    return f"[{next((each for each in _KINDS if each in kind), kind[:40] or 'attachment')}]"
