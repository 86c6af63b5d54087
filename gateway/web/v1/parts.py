"""The content of a message: text, and files that came inside it."""

import base64
import binascii
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from mimetypes import guess_extension

from pydantic import JsonValue

from gateway.web.files import MAX_FILES
from gateway.web.http.errors import Refused

PIECE = 256 * 1024
NOT_TEXT = "[This result had a file, which was left out: only text is taken.]"
FILES = frozenset({"image_url", "file", "input_audio"})


@dataclass(frozen=True, slots=True)
class InlineFile:
    """A file inside a request; `mime` is the client's word."""

    name: str
    mime: str
    data: bytes

    async def pieces(self) -> AsyncIterator[bytes]:
        """Its bytes, as an upload has them."""
        for at in range(0, len(self.data), PIECE):
            yield self.data[at : at + PIECE]


def text_of(content: JsonValue, param: str) -> str:
    """What is said; raises `Refused` for content of an unknown kind."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise _refused("invalid_value", "Content must be a text or a list of parts.", param)
    texts = [_text(part, f"{param}[{at}]") for at, part in enumerate(content)]
    return "\n".join(text for text in texts if text is not None)


def result_of(content: JsonValue, param: str) -> str:
    """What a client's tool returned, as text; it says where something else was left out. Raises `Refused`."""
    left_out = isinstance(content, list) and any(_kind(part) in FILES for part in content)
    return "\n".join(filter(None, (text_of(content, param), NOT_TEXT if left_out else "")))


def files_of(content: JsonValue, param: str) -> tuple[InlineFile, ...]:
    """The files that came with it, in order; raises `Refused`."""
    parts = content if isinstance(content, list) else []
    files = tuple(_file(part, f"{param}[{at}]") for at, part in enumerate(parts) if _kind(part) in FILES)
    if len(files) > MAX_FILES:
        raise _refused("invalid_value", f"A message may have {MAX_FILES} files.", param)
    return files


def _kind(part: JsonValue) -> JsonValue:
    return part.get("type") if isinstance(part, dict) else None


def _text(part: JsonValue, param: str) -> str | None:
    kind = _kind(part)
    if isinstance(part, dict) and kind in ("text", "refusal") and isinstance(text := part.get(str(kind)), str):
        return text
    if isinstance(kind, str) and kind in FILES:
        return None
    message = f"Content of type {json.dumps(kind)} is not supported; use text, image_url, file or input_audio."
    raise _refused("unsupported_value", message, f"{param}.type")


def _file(part: JsonValue, param: str) -> InlineFile:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return _image(url, f"{param}.image_url.url")
        case {"type": "file", "file": {"file_data": str(data), **more}}:
            mime, inside = _data(data, f"{param}.file.file_data")
            name = more.get("filename")
            return InlineFile(name if isinstance(name, str) else f"file{guess_extension(mime) or ''}", mime, inside)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": "wav" | "mp3" as ending}}:
            mime = "audio/wav" if ending == "wav" else "audio/mpeg"
            return InlineFile(f"audio.{ending}", mime, _decoded(data, f"{param}.input_audio.data"))
        case {"type": "file", "file": {"file_id": _}}:
            raise _refused("unsupported_value", "Send the file itself, as `file_data`.", f"{param}.file.file_id")
        case _:
            raise _refused("invalid_value", "This part lacks fields that its type requires.", param)


def _image(url: str, param: str) -> InlineFile:
    if not url.startswith("data:"):
        message = "Pictures are not fetched from other addresses; send it as a data: URL."
        raise _refused("invalid_image_url", message, param)
    mime, inside = _data(url, param)
    return InlineFile(f"picture{guess_extension(mime) or ''}", mime, inside)


def _data(text: str, param: str) -> tuple[str, bytes]:
    """Type and bytes of a data: URL, or of plain base64."""
    if not text.startswith("data:"):
        return "", _decoded(text, param)
    head, _, encoded = text.removeprefix("data:").partition(",")
    mime, *rest = head.split(";")
    if "base64" not in rest:
        raise _refused("invalid_value", "A data: URL must be in base64.", param)
    return mime.lower(), _decoded(encoded, param)


def _decoded(text: str, param: str) -> bytes:
    try:
        # in pieces, between which other threads run
        return b"".join(base64.b64decode(text[at : at + PIECE], validate=True) for at in range(0, len(text), PIECE))
    except (binascii.Error, ValueError):
        raise _refused("invalid_base64", "This is not valid base64.", param) from None


def _refused(code: str, message: str, param: str) -> Refused:
    return Refused(400, code, message, param=param)
