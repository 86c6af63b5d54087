"""Skills from elsewhere: fetched, unpacked and checked; nothing of it is on the disk."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Protocol, assert_never

from pydantic import BaseModel, ValidationError

from gateway.agent.skills.links import Archive, Gist, Place, folder_of, places
from gateway.domain.errors import SupaclawError
from gateway.net.addresses import Rules
from gateway.net.fetch import get_page
from gateway.workspace.skills.folder import BadSkill, Files, checked, entries, unpack

MOST = 40 * 2**20
"""Bytes of an archive: GitHub packs whole repositories."""


class Fetch(Protocol):
    """Reads an address that may be another's idea, with at most so many bytes."""

    async def __call__(self, url: str, most: int, /) -> bytes:
        """The answer's body; raises a `SupaclawError` whose text says what went wrong."""
        ...


async def no_fetch(_url: str, _most: int) -> bytes:
    """A `Fetch` where nothing is fetched."""
    raise BadSkill("Links can't be fetched here; give the text of the SKILL.md.")


def guarded(rules: Callable[[], Rules]) -> Fetch:
    """The `Fetch` of a gateway: through the one client that checks where it connects."""

    async def fetch(url: str, most: int, /) -> bytes:
        client = await asyncio.to_thread(import_module, "gateway.net.client")  # imports httpx2
        return (await get_page(url, rules(), client.Limits(most))).body

    return fetch


async def gather(source: str, fetch: Fetch) -> Files:
    """The files of a skill from the text of its SKILL.md or from a link; raises `SupaclawError`."""
    if is_text(source):
        return checked([("SKILL.md", f"{source.strip()}\n".encode("utf-8", "replace"))])
    failure: SupaclawError = BadSkill("There is nothing at that link.")
    for place in places(source):
        try:
            data = await fetch(place.url, MOST)
        except SupaclawError as error:
            failure = error
            continue
        return await asyncio.to_thread(_files, data, place)
    raise failure


def is_text(source: str) -> bool:
    """Whether it is a SKILL.md itself and no link to one."""
    return source.lstrip("\ufeff").startswith("---")


def _files(data: bytes, place: Place) -> Files:
    match place:
        case Archive():
            return unpack(data, folder_of(entries(data), place.folder))
        case Gist():
            return _gist(data)
        case unreachable:
            assert_never(unreachable)


class _GistFile(BaseModel):
    content: str = ""
    truncated: bool = False


class _GistAnswer(BaseModel):
    files: dict[str, _GistFile]


def _gist(data: bytes) -> Files:
    try:
        found = _GistAnswer.model_validate_json(data).files
    except ValidationError as error:
        raise BadSkill("GitHub's answer about that gist can't be read.") from error
    if any(file.truncated for file in found.values()):
        raise BadSkill("A file of that gist is too large.")
    return checked([(name, file.content.encode("utf-8", "replace")) for name, file in found.items()])
