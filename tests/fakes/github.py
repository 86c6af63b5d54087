"""GitHub as far as skills are fetched from it, on a real socket: codeload's archives and the API of gists."""

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

import aiohttp
from aiohttp import web

from gateway.domain.errors import SupaclawError


@dataclass
class GitHub:
    """`archives` by "owner/repo@ref", `gists` by id; `fetch` is what the gateway is given.

    Like GitHub it answers 404 for what it does not have, knows HEAD and branches with slashes, puts an archive's files
    into a folder named after repository and ref, and redirects an archive's page to codeload.
    """

    archives: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    gists: dict[str, Mapping[str, str]] = field(default_factory=dict)
    raw: dict[str, bytes] = field(default_factory=dict)
    """Whole answers, by host and path."""
    asked: list[str] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/{host}/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._runner.cleanup()

    async def fetch(self, url: str, most: int, /) -> bytes:
        """As the guarded client does: https only, an error status and a body that is too long are errors."""
        target = urlsplit(url)
        assert target.scheme == "https"
        self.asked.append(url)
        here = f"http://127.0.0.1:{self._port}/{target.netloc}{target.path}"
        async with self._session.get(here) as answer:
            if answer.status >= 400:
                raise SupaclawError(f"{target.netloc} answered {answer.status} ({answer.reason}).")
            body = await answer.read()
        if len(body) > most:
            raise SupaclawError(f"The answer of {target.netloc} is larger than {most >> 20} MB.")
        return body

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        host, parts = request.match_info["host"], [unquote(part) for part in request.match_info["path"].split("/")]
        whole = self.raw.get(f"{host}/{'/'.join(parts)}")
        if whole is not None:
            return web.Response(body=whole)
        match host, parts:
            case "codeload.github.com", [owner, name, "zip", *ref]:
                return self._archive(owner, name, "/".join(ref).removeprefix("refs/heads/"))
            case "github.com", [owner, name, "archive", *ref]:
                plain = "/".join(ref).removesuffix(".zip")
                raise web.HTTPFound(f"/codeload.github.com/{owner}/{name}/zip/{plain}")
            case "api.github.com", ["gists", id] if id in self.gists:
                files = {
                    name: {
                        "filename": name,
                        "type": "text/markdown",
                        "truncated": False,
                        "size": len(text),
                        "content": text,
                    }
                    for name, text in self.gists[id].items()
                }
                return web.Response(text=json.dumps({"id": id, "public": True, "files": files}))
            case _:
                raise web.HTTPNotFound

    def _archive(self, owner: str, name: str, ref: str) -> web.Response:
        files = self.archives.get(f"{owner}/{name}@{ref}")
        if files is None:
            raise web.HTTPNotFound
        top, target = f"{name}-{ref.replace('/', '-')}", io.BytesIO()
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{top}/", b"")
            for path, data in files.items():
                archive.writestr(f"{top}/{path}", data)
        return web.Response(body=target.getvalue(), content_type="application/zip")
