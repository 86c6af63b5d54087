"""Files of the workspace: which parts their owner has locked, and their versions that several machines share."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass
from itertools import zip_longest

_MARK = re.compile(rb"<!--\s{0,20}(/?)\s{0,20}(CORE:LOCK|AI:OPEN)\s{0,20}(-->)?", re.IGNORECASE)
"""Matches an unfinished one too, since the text that follows may complete it."""
PLAYABLE = ("audio/ogg", "audio/mpeg", "audio/mp4", "audio/wav", "audio/x-wav", "audio/flac", "audio/webm")
"""The types of recordings that browsers play."""
_UTF_16 = (BOM_UTF16_LE, BOM_UTF16_BE)


def locked_parts(data: bytes) -> tuple[bytes, ...]:
    """The pieces that only the owner may change: all around AI:OPEN sections, with the markers. Empty without markers.

    Open is only what stands between an AI:OPEN marker and its end, outside of CORE:LOCK and without a marker in
    between. A CORE:LOCK section without an end locks all that follows; so does one whose markers aren't well-formed.
    """
    if data.startswith(_UTF_16) and _MARK.search(data.decode("utf-16", "ignore").encode("utf-8", "ignore")):
        return (data,)
    marks = list(_MARK.finditer(data))
    parts, start, depth = [], 0, 0
    for mark, after in zip_longest(marks, marks[1:]):
        match _kind(mark):
            case b"core:lock" | b"core:lock?":
                depth += 1
            case b"/core:lock":
                depth = max(0, depth - 1)
            case b"ai:open" if not depth and after and _kind(after) == b"/ai:open":
                parts.append(data[start : mark.end()])
                start = after.start()
            case _:
                pass
    return (*parts, data[start:]) if marks else ()


def may_write(before: bytes, after: bytes) -> bool:
    """Whether the agent may make this change: locked parts stay as they are, and it sets no markers itself."""
    return locked_parts(before) == locked_parts(after)


def _kind(mark: re.Match[bytes]) -> bytes:
    """`core:lock`, `/ai:open`, …; with a question mark if the marker isn't finished."""
    slash, name, end = mark.groups()
    return b"".join((slash, name.lower(), b"" if end else b"?"))


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's content; equal if all fields are."""

    sha256: str
    size: int
    executable: bool = False


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A path in the map; without a content it was deleted. `version` is compared when it is set."""

    content: FileContent | None
    version: int
