"""Erasures: what the next start erases, the last receipt, and records of those that broke off, without their words.

The page's request is the only file that names words to erase, so the search for them leaves its folder out.
"""

import json
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from gateway.config.data.files import read_regular, replace_private, replace_regular, sync_to_disk

FOLDER, _UNFINISHED = "erasure", "erasures.unfinished"
PAGE, MEMBER = "request", "member"
"""The files of the page's request, and of a member's erasure that has begun."""


class ErasureRequest(BaseModel):
    """The memory to erase, with the sentences that contain one of `also`; without it, only the last receipt.

    `member` is an account of the member to erase, and `receipt` is theirs then.
    """

    memory: int | None = None
    member: str = ""
    also: tuple[str, ...] = ()
    receipt: str = ""


def read_request(data: Path, of: str = PAGE) -> ErasureRequest:
    """The request that the next start carries out, or the receipt of the last one; an empty one if there is neither."""
    with suppress(OSError, ValueError):
        return ErasureRequest.model_validate_json(read_regular(data / FOLDER / of))
    return ErasureRequest()


def save_request(data: Path, request: ErasureRequest, of: str = PAGE) -> None:
    """Store it on disk, in the place of the one before and of its words."""
    replace_private(data / FOLDER / of, request.model_dump_json().encode())


def unfinished_erasures(data: Path) -> dict[int, int]:
    """The ids of memories whose erasure broke off, each with the number of its --also words."""
    with suppress(OSError, ValueError):
        return {int(id): int(words) for id, words in json.loads(read_regular(data / _UNFINISHED)).items()}
    return {}


def note_erasure_begun(data: Path, memory: int, words: int) -> None:
    """Record an erasure, on disk, before anything is erased."""
    _save_erasures(data, {**unfinished_erasures(data), memory: words})


def note_erasure_finished(data: Path, memory: int) -> None:
    """Remove the record of a finished erasure."""
    _save_erasures(data, {id: words for id, words in unfinished_erasures(data).items() if id != memory})


def erasure_reminder(data: Path) -> str:
    """A line about unfinished erasures, "problem; fix"; "" if there are none."""
    if not (left := unfinished_erasures(data)):
        return ""
    also = " with the same --also" if any(left.values()) else ""
    again = f"stop the gateway and run `supaclaw memories forget {min(left)} --erase` again{also}"
    return f"the erasure of memory {', '.join(map(str, sorted(left)))} broke off; {again}"


def _save_erasures(data: Path, left: dict[int, int]) -> None:
    path = data / _UNFINISHED
    replace_regular(path, json.dumps(left).encode())
    sync_to_disk(path)
    sync_to_disk(data)
