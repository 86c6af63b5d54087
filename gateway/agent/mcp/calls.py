"""A tool of an MCP server as a tool of ours: its class, what a person is asked, and the call."""

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.agent.mcp.pinned_tools import PinnedTool, ToolState, Use
from gateway.agent.tool_sources import AnyArguments
from gateway.domain.conversation.diff import written_out
from gateway.domain.conversation.tools import AnyTool, Caller, Change, Effect, Labelled, Tool, ToolClass, ToolFailed
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.marks import data_from
from gateway.net.errors import NetError
from gateway.net.mcp.server import (
    STDIO,
    STDIO_WITH_NETWORK,
    Blob,
    McpResult,
    ServerError,
    ToolDefinition,
    visible,
    visible_json,
)
from gateway.workspace.files.paths import WorkspaceError

if TYPE_CHECKING:
    from gateway.net.mcp.connection import Connection

MAX_TEXT, MAX_ERROR, MAX_FILES = 2_000_000, 2_000, 10
"""Characters and files of one result."""

Connect = Callable[[str], Awaitable["Connection"]]
"""A living connection to a server of this name; raises `NetError`."""
Save = Callable[[str, bytes], Awaitable[str]]
"""Stores a file of a server under a proposed path, and answers where it can be read."""


@dataclass(frozen=True, slots=True)
class McpCalls:
    """Calls of one tool, as it was described when the model was shown it."""

    pinned: PinnedTool
    connect: Connect
    save: Save

    @property
    def shown(self) -> ToolDefinition:
        """What the model was shown, and a yes covers."""
        return self.pinned.definition

    def tool(self, seconds: float) -> AnyTool:
        """For the toolbox."""
        return Tool(
            self.pinned.name,
            self.shown.shown_description,
            AnyArguments,
            self.run,
            Effect.SAFE if self.pinned.use is Use.READ else Effect.ONCE,
            timeout=seconds,
            kind=self.kind,
            lasting=self.change,
            private=True,
            parameters=self.shown.shown_parameters,
        )

    async def kind(self, arguments: AnyArguments, _caller: Caller) -> ToolClass:
        """What leaves this machine tells somebody something; only its owner's word makes it less than an act."""
        match self.pinned.use:
            case Use.READ:
                # On this machine, too: a server that reads pages sends what it is given to wherever that leads.
                silent = not arguments.model_extra or self.shown.url.startswith(STDIO)
                return ToolClass.NET if silent else ToolClass.SEND
            case Use.WRITE:
                return ToolClass.ACT
            case Use.IRREVERSIBLE:
                return ToolClass.IRREVERSIBLE

    async def change(self, arguments: AnyArguments, _caller: Caller) -> Change:
        """The call, written out."""
        known = "" if self.pinned.state is ToolState.ON else ", which you have not confirmed"
        call = written_out(self.pinned.name, arguments.model_dump(mode="json"))
        url = urlsplit(self.shown.url)
        reaches = f", which reaches {url.path.split('/')[1]}" if self.shown.url.startswith(STDIO_WITH_NETWORK) else ""
        return Change(f"Call a tool of {self.shown.host}{known}{reaches}.\n{call}", self.shown.sha256)

    async def run(self, arguments: AnyArguments, _caller: Caller) -> Labelled:
        """Its answer, untrusted; raises `ToolFailed`."""
        try:
            connection = await self.connect(self.shown.server)
            self._check(connection.tools.get(self.shown.name))
            answer = await connection.call(self.shown.name, arguments.model_dump(mode="json"))
        except NetError as error:
            label = Label.UNTRUSTED if isinstance(error, ServerError) else Label.OWNER
            raise ToolFailed(error.code, str(error), label) from error
        if answer.failed:
            raise ToolFailed("tool_error", visible(answer.text)[:MAX_ERROR] or "The tool failed.", Label.UNTRUSTED)
        return Labelled(await self._result(answer), Label.UNTRUSTED)

    def _check(self, now: ToolDefinition | None) -> None:
        if now is None:
            raise ToolFailed("gone", f"{self.shown.server} no longer has this tool.")
        if now.sha256 != self.shown.sha256:
            message = f"Its server now describes {self.pinned.name} differently; it's off until its owner confirms it."
            raise ToolFailed("changed", message)

    async def _result(self, answer: McpResult) -> JsonObject:
        note = data_from(self.shown.host)
        files = [await self._saved(blob) for blob in answer.blobs[:MAX_FILES]]
        more: JsonObject = {"files": files, "files_left_out": len(answer.blobs) - len(files)} if files else {}
        structured: JsonObject = {} if answer.structured is None else {"structured": visible_json(answer.structured)}
        return {"note": note, "text": visible(answer.text)[:MAX_TEXT], **structured, **more}

    async def _saved(self, blob: Blob) -> JsonObject:
        digest = hashlib.sha256(blob.data).hexdigest()[:12]
        path = f"tool-results/mcp-{digest}{mimetypes.guess_extension(blob.mime) or '.bin'}"
        about: JsonObject = {"mime": visible(blob.mime)[:100], "bytes": len(blob.data)}
        try:
            return {"path": await self.save(path, blob.data), **about}
        except WorkspaceError as error:
            return {"problem": str(error), **about}
