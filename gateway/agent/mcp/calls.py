"""A tool of an MCP server as a tool of the agent: its class, its approval, and its calls."""

import asyncio
import hashlib
import json
import mimetypes
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.agent.mcp.elicitation import ATTEMPTS, Consult, Form
from gateway.agent.mcp.pinned_tools import PinnedTool, ToolState, Use
from gateway.agent.tool_sources import AnyArguments
from gateway.domain.conversation.diff import LONGEST, written_out
from gateway.domain.conversation.tools import AnyTool, Caller, Change, Effect, Labelled, Tool, ToolClass, ToolFailed
from gateway.domain.errors import required
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.marks import data_from, quoted
from gateway.domain.text.texts import one_line
from gateway.net.mcp.server import (
    STDIO,
    STDIO_WITH_NETWORK,
    Blob,
    McpResult,
    ServerQuestion,
    ToolDefinition,
    visible,
    visible_json,
)
from gateway.workspace.files.paths import WorkspaceError

if TYPE_CHECKING:
    from gateway.net.mcp.connection import Connection

MAX_TEXT, MAX_ERROR, MAX_FILES = 2_000_000, 2_000, 10
"""Limits of one result: characters of its text and of an error, and files."""

ANSWER_SECONDS = 900.0
"""The longest time in which a person answers all questions of a call."""

Connect = Callable[[str], Awaitable["Connection"]]
"""Returns an open connection to the server with this name; raises `NetError`."""
Save = Callable[[str, bytes], Awaitable[str]]
"""Stores a file of a server under a proposed path; returns the path at which it can be read."""


Pin = Callable[[str, str, Callable[[], Awaitable[bool]]], Awaitable[bool]]
"""Whether a person confirmed a prompt's text, by name and hash, or does when asked."""


_ACTS = {Use.WRITE: ToolClass.ACT, Use.IRREVERSIBLE: ToolClass.IRREVERSIBLE}
"""The classes of tools that act; the pin of a plan has them."""


@dataclass(frozen=True, slots=True)
class McpCalls:
    """Calls one tool, by the definition that the model was shown."""

    pinned: PinnedTool
    connect: Connect
    save: Save
    consult: Consult
    pin: Pin
    seconds: float
    """How long a call may take, besides the time in which a person answers its questions."""

    @property
    def shown(self) -> ToolDefinition:
        """The definition that the model was shown, and that an approval covers."""
        return self.pinned.definition

    @property
    def tool(self) -> AnyTool:
        """The tool for the toolbox."""
        return Tool(
            self.pinned.name,
            self.shown.shown_description,
            AnyArguments,
            self.run,
            Effect.SAFE if self.pinned.use is Use.READ else Effect.ONCE,
            timeout=self.seconds + ANSWER_SECONDS,
            kind=self.kind_of_reading if self.pinned.use is Use.READ else _ACTS[self.pinned.use],
            lasting=self.change,
            private=True,
            parameters=self.shown.shown_parameters,
            roles=self.pinned.meaning.roles,
            server=self.shown.server,
            own_rows=self.pinned.meaning.own_rows,
            waits=self.waits,
        )

    async def waits(self, caller: Caller) -> bool:
        """Whether an interrupted call waits for the answer to a question that its server asked."""
        return bool((await self.consult.rest_of(caller))[0])

    async def kind_of_reading(self, arguments: AnyArguments, _caller: Caller) -> ToolClass:
        """The class of a call of a tool that the owner has confirmed to read only."""
        # Arguments can leave even a server on this machine, such as one that reads pages.
        silent = not arguments.model_extra or self.shown.url.startswith(STDIO)
        return ToolClass.NET if silent else ToolClass.SEND

    async def change(self, arguments: AnyArguments, _caller: Caller) -> Change:
        """The call, written out for approval."""
        known = "" if self.pinned.state is ToolState.ON else ", which you have not confirmed"
        call = written_out(self.pinned.name, arguments.model_dump(mode="json"))
        url = urlsplit(self.shown.url)
        reaches = f", which reaches {url.path.split('/')[1]}" if self.shown.url.startswith(STDIO_WITH_NETWORK) else ""
        return Change(f"Call a tool of {self.shown.host}{known}{reaches}.\n{call}", self.shown.sha256)

    async def run(self, arguments: AnyArguments, caller: Caller) -> Labelled:
        """Call the tool; its answer is untrusted. Raises `ToolFailed`."""
        asked, declined = list[asyncio.Task[JsonObject | None]](), list[str]()
        rest, first = ("", 0) if self.pinned.use is Use.READ else await self.consult.rest_of(caller)
        numbers = count(first)

        async def ask(question: ServerQuestion) -> JsonObject | None:
            limit.reschedule(None)
            asked.append(asyncio.create_task(self._ask(question, caller, numbers, declined)))
            try:
                return await asked[-1]
            finally:
                limit.reschedule(asyncio.get_running_loop().time() + self.seconds)
                await caller.fence()

        try:
            async with asyncio.timeout(self.seconds) as limit:
                connection = await self.connect(self.shown.server)
                self._check(connection.tools.get(self.shown.name))
                report = partial(self.consult.report, caller)
                answer = await connection.call(self.shown.name, arguments.model_dump(mode="json"), ask, report, rest)
        except TimeoutError:
            await caller.fence()  # raises if the database is silent, too
            what = f"took longer than {self.seconds:g} s and was stopped; it may have had an effect."
            raise ToolFailed.own("timeout", f"{self.pinned.name} {what}") from None
        finally:
            for each in asked:
                each.cancel()
        if answer.failed:
            data = "" if answer.structured is None else json.dumps(answer.structured, ensure_ascii=False)
            said = "\n".join(visible(each)[:MAX_ERROR] for each in (answer.text, data) if each)
            raise ToolFailed("tool_error", said or "The tool failed.", Label.UNTRUSTED)
        if answer.prompt:
            await self._confirm(answer, arguments.model_dump(mode="json"), caller)
        refused: JsonObject = {"declined_for_you": declined} if declined else {}
        return Labelled({**await self._result(answer), **refused}, Label.UNTRUSTED)

    async def _ask(
        self, question: ServerQuestion, caller: Caller, numbers: Iterator[int], declined: list[str]
    ) -> JsonObject | None:
        """Ask the person, again if their answer doesn't fit; `declined` gets why a question is never put to them."""
        try:
            form, problem = Form.of(self.shown.host, question), ""
        except ValueError as error:
            declined.append(one_line(str(error), MAX_ERROR))
            return None
        if not caller.address:
            declined.append("nobody can be asked in an unattended run")
            return None
        for _ in range(ATTEMPTS):
            shown = form.preview(problem)
            text = await self.consult.ask(caller, self.pinned.name, shown, next(numbers), question.rest)
            try:
                return None if text is None else form.read(text)
            except ValueError as error:
                problem = str(error)
        return None

    async def _confirm(self, prompt: McpResult, arguments: JsonObject, caller: Caller) -> None:
        """Have the person confirm a prompt's text, unless they confirmed exactly this before; raises `ToolFailed`."""
        text = visible(prompt.text)
        if len(text) > LONGEST:
            raise ToolFailed.own("too_long", "A person has to confirm the prompt's text, and it is too long to show.")
        parts = text.encode(), *(blob.data for blob in prompt.blobs), json.dumps(arguments, sort_keys=True).encode()
        *contents, filled = (hashlib.sha256(part).hexdigest() for part in parts)
        files = f"\nand {len(prompt.blobs)} files" * bool(prompt.blobs)

        async def ask() -> bool:
            shown = f"{self.shown.host} gives this as the prompt. May I do what it asks?\n{quoted(text)}{files}"
            return bool(caller.address) and await self.consult.ask(caller, self.pinned.name, shown, 0, "") is not None

        if not await self.pin(f"{self.shown.server} {filled}", " ".join(contents), ask):
            raise ToolFailed.own("not_confirmed", "Its person has not confirmed the prompt's text, so it isn't used.")

    def _check(self, now: ToolDefinition | None) -> None:
        now = required(now, ToolFailed.own("gone", f"{self.shown.server} no longer has this tool."))
        if now.sha256 != self.shown.sha256:
            message = f"Its server now describes {self.pinned.name} differently; it's off until its owner confirms it."
            raise ToolFailed.own("changed", message)

    async def _result(self, answer: McpResult) -> JsonObject:
        files = [await self._saved(blob) for blob in answer.blobs[:MAX_FILES]]
        more: JsonObject = {"files": files, "files_left_out": len(answer.blobs) - len(files)} if files else {}
        structured: JsonObject = {} if answer.structured is None else {"structured": visible_json(answer.structured)}
        return {"note": data_from(self.shown.host), "text": visible(answer.text)[:MAX_TEXT], **structured, **more}

    async def _saved(self, blob: Blob) -> JsonObject:
        digest = hashlib.sha256(blob.data).hexdigest()[:12]
        path = f"tool-results/mcp-{digest}{mimetypes.guess_extension(blob.mime) or '.bin'}"
        about: JsonObject = {"mime": visible(blob.mime)[:100], "bytes": len(blob.data)}
        try:
            return {"path": await self.save(path, blob.data), **about}
        except WorkspaceError as error:
            return {"problem": str(error), **about}
