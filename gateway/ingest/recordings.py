"""Recordings by the bytes of their containers: whether there is a picture track decides between audio and video."""

import re
import struct
from pathlib import Path
from typing import Literal, NamedTuple

MAX_MOOV_BYTES = 2 * 1024**2


class Recording(NamedTuple):
    """A kind and its MIME type."""

    kind: Literal["audio", "video"]
    mime: str


_AUDIO: tuple[tuple[bytes, str], ...] = (
    (rb"RIFF....WAVE|RF64....WAVE", "audio/wav"),
    (rb"fLaC", "audio/flac"),
    (rb"\xff[\xf0\xf1\xf8\xf9]", "audio/aac"),
    # A frame of layer III or II whose bit rate and sample rate exist.
    (rb"ID3|\xff[\xe2\xe3\xf2-\xf5\xfa-\xfd][\x10-\x1b\x20-\x2b\x30-\xeb]", "audio/mpeg"),
    (rb"#!AMR", "audio/amr"),
    (rb"caff\0", "audio/x-caf"),
    (rb"FORM....AIF[FC]", "audio/aiff"),
    (rb"MThd", "audio/midi"),
)
_ASF = b"\x30\x26\xb2\x75\x8e\x66\xcf\x11"
_ASF_VIDEO = b"\xc0\xef\x19\xbc\x4d\x5b\xcf\x11"


def recording(source: Path, head: bytes) -> Recording | None:
    """The kind of recording; None if it is none. `head` is its beginning."""
    if head[4:8] == b"ftyp":
        return _movie(source, head[8:12])
    if head.startswith(b"OggS"):
        film = b"\x80theora" in head[:512]
        return Recording("video", "video/ogg") if film else Recording("audio", "audio/ogg")
    if head.startswith(b"\x1aE\xdf\xa3"):
        film = b"V_" in head or b"A_" not in head
        return Recording("video", "video/webm") if film else Recording("audio", "audio/webm")
    if head.startswith(_ASF):
        film = _ASF_VIDEO in head
        return Recording("video", "video/x-ms-wmv") if film else Recording("audio", "audio/x-ms-wma")
    found = (mime for magic, mime in _AUDIO if re.match(magic, head, re.DOTALL))
    return next((Recording("audio", mime) for mime in found), None)


def _movie(source: Path, brand: bytes) -> Recording:
    """ISO 14496-12: the handlers in `moov` name the kinds of the tracks; a brand says nothing certain."""
    moov = _moov(source)
    film = b"vide" in moov if moov else not brand.startswith((b"M4A", b"M4B"))
    kind: Literal["audio", "video"] = "video" if film else "audio"
    return Recording(kind, f"{kind}/3gpp" if brand.startswith(b"3g") else f"{kind}/mp4")


def _moov(source: Path) -> bytes:
    """The handlers of the tracks, each with its kind; b"" without any."""
    with source.open("rb") as file:
        while len(header := file.read(8)) == 8:
            size, name = struct.unpack(">I4s", header)
            size = struct.unpack(">Q", file.read(8).rjust(8, b"\0"))[0] - 8 if size == 1 else size
            if name == b"moov":
                body = file.read(min(size, MAX_MOOV_BYTES) if size else MAX_MOOV_BYTES)
                return b" ".join(re.findall(rb"hdlr.{8}(vide|soun)", body, re.DOTALL))
            if size < 8:
                break
            file.seek(size - 8, 1)
    return b""
