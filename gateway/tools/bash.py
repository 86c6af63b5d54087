"""A shell on virtual files that last for one turn, without programs, network or files of the machine."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pydantic import Field

from gateway.agent.exec.terminal import rendered
from gateway.domain.conversation.tools import AnyTool, Caller, Labelled, ToolArguments, ToolClass, ToolFailed
from gateway.domain.json import Json, JsonObject
from gateway.domain.principals import Label
from gateway.net import fetch
from gateway.net.addresses import parse_url
from gateway.sandbox.virtual.shell import HOME, MAX_BYTES, SECONDS, ShellResult
from gateway.tools import Bash, Services, ShellScript, declared, tool
from gateway.workspace.files.paths import WorkspacePath
from gateway.workspace.files.search import files_named
from gateway.workspace.files.uploads import mime_of

MAX_FILES, MAX_URLS = 1_000, 10
PAGE_CHARS = 8_000


class BashArguments(ToolArguments):
    """Arguments of bash."""

    script: str = Field(max_length=60_000)
    files: tuple[str, ...] = Field((), max_length=50, description="Workspace files to copy in, e.g. */*.csv")
    save: tuple[str, ...] = Field((), max_length=20, description="Files to copy back")
    urls: tuple[str, ...] = Field((), max_length=MAX_URLS, description="What curl reads")


@dataclass(frozen=True, slots=True)
class _Bash:
    services: Services
    shell: Bash

    async def kind(self, arguments: BashArguments, caller: Caller) -> ToolClass:
        """A request to an address that the person didn't name counts as a message to its host."""
        if arguments.urls:
            named = [await caller.said(url) for url in arguments.urls]
            return ToolClass.NET if all(named) else ToolClass.SEND
        return ToolClass.WRITE if arguments.save else ToolClass.READ

    @tool("Running a script", "Ran a script", kind, timeout=2 * SECONDS + 30, max_result=3 * PAGE_CHARS, private=True)
    async def bash(self, arguments: BashArguments, caller: Caller) -> Labelled:
        """Not a real shell: grep, sort, cut, sed and so on, on virtual files in /workspace, kept for this turn.

        No programs, awk or jq.
        """
        targets = [str(WorkspacePath.parse(path.removeprefix(f"{HOME}/"))) for path in arguments.save]
        if any([await asyncio.to_thread(self.services.workspace.is_instructions, path) for path in targets]):
            raise ToolFailed.own("refused", "Instructions can't be saved from here; use write_file.")
        label, files = await self._copied(arguments.files, caller.label)
        pages = {url: await self._fetched(url) for url in arguments.urls}
        label = Label.UNTRUSTED if pages else label
        wanted = [f"{HOME}/{path}" for path in targets]
        run = await self.shell.run(caller.task, ShellScript(arguments.script, files, pages, wanted, label))
        for path, data in run.saved.items():
            name = path.removeprefix(f"{HOME}/")
            await self.services.workspace.write(name, data, run.label, mime_of(name))
        not_saved = [target for target, path in zip(targets, wanted, strict=True) if path not in run.saved]
        return Labelled(_answer(run.result, not_saved), run.label)

    async def _copied(self, patterns: Sequence[str], label: Label) -> tuple[Label, dict[str, bytes]]:
        """The files to copy in, and the label of all that they hold."""
        workspace, files, size = self.services.workspace, dict[str, bytes](), 0
        found = [await files_named(workspace, pattern.removeprefix(f"{HOME}/")) for pattern in patterns]
        paths = list(dict.fromkeys(path for each in found for path in each.paths))
        label = max([label, *(each.label for each in found)])
        for path in paths:
            data = await workspace.content(path, MAX_BYTES - size + 1)
            if data is None:
                raise ToolFailed.own("not_found", f"There is no file {path}.")
            label = max(label, await workspace.labels.of(path, hashlib.sha256(data).hexdigest()))
            size += len(data)
            if size > MAX_BYTES or len(files) == MAX_FILES:
                message = f"At most {MAX_FILES:,} files and {MAX_BYTES >> 20} MB can be copied in."
                raise ToolFailed.own("too_large", message)
            files[f"{HOME}/{path}"] = data
        return label, files

    async def _fetched(self, url: str) -> bytes:
        allowed, web = self.shell.allow_urls(), self.services.web

        def allows(address: str) -> bool:
            return any(_covers(each, address) for each in allowed)

        if web is None or not allows(parse_url(url).url):
            raise ToolFailed.own("not_allowed", f"{url[:200]} isn't below an address in tools.bash.allow_urls.")
        return (await fetch.get_page(url, web.rules(), may_follow=allows)).body


def _covers(allowed: str, url: str) -> bool:
    """Whether `url` is this address or below it."""
    base = parse_url(allowed).url
    climbs = ".." in re.split(r"[/\\]", unquote(urlsplit(url).path))
    return not climbs and (url == base or url.startswith((base if base.endswith("/") else f"{base}/", f"{base}?")))


def _answer(result: ShellResult, not_saved: Sequence[str]) -> JsonObject:
    more: dict[str, Json] = {
        "errors": _page(result.errors),
        "not_supported": list(result.refused),
        "not_saved": list(not_saved),
    }
    notes = {name: value for name, value in more.items() if value}
    return {"exit_code": result.exit_code, "output": _page(rendered(result.output)), **notes}


def _page(text: str) -> str:
    """The beginning and the end of a long text; `head` and `tail` show the rest."""
    half, left_out = PAGE_CHARS // 2, len(text) - PAGE_CHARS
    return f"{text[:half]}\n[... {left_out:,} left out ...]\n{text[-half:]}" if left_out > 0 else text


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool, if the kernel can confine the shell."""
    return () if services.bash is None else declared(_Bash(services, services.bash))
