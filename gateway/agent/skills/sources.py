"""Skills from GitHub: found in an index, fetched, unpacked and checked in memory.

A model may write the link, so it must lead to GitHub, and to nothing that counts its readers: no other host can read
the data that an address carries.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, assert_never
from urllib.parse import quote, unquote, urlencode, urlsplit

from pydantic import BaseModel, Field, ValidationError

from gateway.domain.errors import SupaclawError, raising
from gateway.domain.json import JsonObject
from gateway.domain.text.texts import one_line
from gateway.net.addresses import Rules
from gateway.net.fetch import get_page
from gateway.workspace.skills.folder import MANIFESTS, Files, checked, entries, unpack
from gateway.workspace.skills.parsing import BadSkill

_FORMS = "a repository, a folder (tree), a file (blob or raw), a gist or a zip archive"
_INDEX = "https://skills.sh/"
_REFS = 3
"""The most parts of the name of a branch: a link doesn't show where the name ends."""
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip archive at an address, and the folder in it, or the name of the skill's folder, wherever that is."""

    url: str
    folder: str = ""
    skill: str = ""


@dataclass(frozen=True, slots=True)
class Gist:
    """The address of a gist in GitHub's API."""

    url: str


Place = Archive | Gist


def places(link: str) -> Sequence[Place]:
    """The places where the skill of a link may be, the likeliest first; raises `BadSkill`."""
    with raising(_refused(link), ValueError):
        url = urlsplit(link.strip())
        port, host = url.port, url.hostname
    parts = [unquote(part) for part in url.path.split("/") if part]
    if url.scheme != "https" or url.username or port or any(part in (".", "..") or "/" in part for part in parts):
        raise _refused(link)
    match host, parts:
        case "github.com" | "www.github.com", [owner, name]:
            return [Archive(_zip(owner, name.removesuffix(".git"), ["HEAD"]))]
        case "github.com" | "www.github.com", [owner, name, "tree", *rest] if rest:
            return _by_ref(owner, name, rest)
        case "github.com" | "www.github.com", [owner, name, "blob" | "raw", *rest] if len(rest) > 1:
            return _by_ref(owner, name, rest[:-1])
        case "raw.githubusercontent.com", [owner, name, *rest] if len(rest) > 1:
            plain = rest[2:] if rest[:1] == ["refs"] and len(rest) > 3 else rest
            return _by_ref(owner, name, plain[:-1])
        case "github.com" | "www.github.com", [_, _, "archive" | "releases", *_, last] if last.endswith(".zip"):
            return [Archive(_https("github.com", parts))]
        case "codeload.github.com", [_, _, "zip", _, *_]:
            return [Archive(_https("codeload.github.com", parts))]
        case "skills.sh" | "www.skills.sh", [owner, name, skill]:
            return [Archive(_zip(owner, name, ["HEAD"]), skill=skill)]
        case ("gist.github.com", [id] | [_, id] | [_, id, _] | [_, id, "archive" | "download" | "raw", *_]) | (
            "gist.githubusercontent.com",
            [_, id, "raw", *_],
        ):
            return [Gist(_https("api.github.com", ["gists", id]))]
        case _:
            raise _refused(link)


def check_uncounted(link: str) -> None:
    """Raise `BadSkill` for a file of a release, whose downloads GitHub counts, and for a link of no skill."""
    if any(place.url.split("/")[5:6] == ["releases"] for place in places(link)):
        raise BadSkill(
            "GitHub counts the downloads of a release's files, so no agent fetches them; use the link of the "
            "repository or of a folder of it, or the owner runs `supaclaw skills install` with this link."
        )


def folder_of(names: Sequence[str], wanted: str, skill: str = "") -> str:
    """The folder of the skill in an archive with these files, `""` or with a slash at its end; raises `BadSkill`."""
    tops = {name.partition("/")[0] for name in names}
    top = f"{tops.pop()}/" if len(tops) == 1 and all("/" in name for name in names) else ""
    below = f"{top}{wanted}/" if wanted else top
    found = sorted({name[: -len(last)] for name in names for last in MANIFESTS if _is(name, below, last)})
    found = [each for each in found if skill and each.endswith(f"/{skill}/")] or found
    if below in found or len(found) == 1:
        return below if below in found else found[0]
    if not found:
        raise BadSkill("There is no SKILL.md at that link.")
    listed = ", ".join(each.removeprefix(top).rstrip("/")[:80] for each in found[:_SHOWN])
    raise BadSkill(f"There are {len(found)} skills at that link; give the link of one of these folders: {listed}.")


def _is(name: str, below: str, last: str) -> bool:
    return name.startswith(below) and (name == below + last or name.endswith(f"/{last}"))


def _by_ref(owner: str, name: str, rest: Sequence[str]) -> list[Place]:
    splits = range(1, min(len(rest), _REFS) + 1)
    return [Archive(_zip(owner, name, rest[:end]), "/".join(rest[end:])) for end in splits]


def _zip(owner: str, name: str, ref: Sequence[str]) -> str:
    return _https("codeload.github.com", [owner, name, "zip", *ref])


def _https(host: str, parts: Sequence[str]) -> str:
    return f"https://{host}/{'/'.join(quote(part, safe='') for part in parts)}"


def _refused(link: str) -> BadSkill:
    return BadSkill(f"{link[:100]!r} isn't an https GitHub link to {_FORMS}.")


MAX_ARCHIVE_BYTES = 40 * 2**20
"""Bytes of an archive: GitHub packs whole repositories."""


class Fetch(Protocol):
    """Fetches an untrusted address, up to a number of bytes."""

    async def __call__(self, url: str, most: int, /) -> bytes:
        """The body of the answer; raises a `SupaclawError` with a text for people."""


async def no_fetch(_url: str, _most: int) -> bytes:
    """A `Fetch` that refuses every link."""
    raise BadSkill("Links can't be fetched here; give the text of the SKILL.md.")


def guarded(rules: Callable[[], Rules]) -> Fetch:
    """The `Fetch` of a gateway, through the guarded client."""

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
            data = await fetch(place.url, MAX_ARCHIVE_BYTES)
        except SupaclawError as error:
            failure = error
            continue
        return await asyncio.to_thread(_files, data, place)
    raise failure


def is_text(source: str) -> bool:
    """Whether this is the text of a SKILL.md, not a link."""
    return source.lstrip("\ufeff").startswith("---")


def _files(data: bytes, place: Place) -> Files:
    match place:
        case Archive():
            return unpack(data, folder_of(entries(data), place.folder, place.skill))
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
    with raising(BadSkill("GitHub's answer about that gist can't be read."), ValidationError):
        found = _GistAnswer.model_validate_json(data).files
    if any(file.truncated for file in found.values()):
        raise BadSkill("A file of that gist is too large.")
    return checked([(name, file.content.encode("utf-8", "replace")) for name, file in found.items()])


class _Hit(BaseModel):
    name: str
    id: str = Field(alias="skillId")
    source: str
    installs: int = 0


class _Hits(BaseModel):
    skills: list[_Hit]


async def find(words: str, fetch: Fetch) -> list[JsonObject]:
    """Skills on GitHub that the index skills.sh has for these words, in its words; raises `SupaclawError`."""
    data = await fetch(f"{_INDEX}api/search?{urlencode({'q': words, 'limit': _SHOWN})}", 2**20)
    with raising(BadSkill("The answer of skills.sh can't be read."), ValidationError):
        hits = _Hits.model_validate_json(data).skills
    return [
        {"name": one_line(hit.name, 100), "installs": hit.installs, "link": f"{_INDEX}{hit.source}/{hit.id}"}
        for hit in hits[:_SHOWN]
        if re.fullmatch(r"[\w.-]{1,100}(/[\w.-]{1,100}){2}", f"{hit.source}/{hit.id}")
    ]
