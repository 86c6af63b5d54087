"""Commands: one line of shell on the files of the workspace, in the jail."""

import asyncio
from dataclasses import dataclass

from pydantic import Field

from gateway.agent.exec.commands import Permit, WorkspaceCommands, changed_files, command_ending
from gateway.agent.exec.processes import BoundedOutput
from gateway.agent.exec.terminal import rendered
from gateway.domain.conversation.tools import (
    AnyTool,
    Caller,
    Change,
    Effect,
    Labelled,
    ToolArguments,
    ToolClass,
    ToolFailed,
)
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.sandbox.command import Ending, Limits
from gateway.tools import Services, ToolOptions, declared, tool

PAGE_CHARS = 8_000
KEPT_BYTES = 2 * 1024**2
FLOOD_BYTES = 64 * 1024**2
"""The most output; a command that writes more is ended."""
MAX_SECONDS = 900


class ExecArguments(ToolArguments):
    """Arguments of exec."""

    command: str = Field(max_length=60_000, description="For the shell; e.g. python3 -m unittest")
    folder: str = Field(".", description="Where to start")
    seconds: int = Field(60, ge=1, le=MAX_SECONDS)
    hosts: tuple[str, ...] = Field(
        (), max_length=10, description="To reach by HTTP(S), as host or host:port: asks first"
    )


_RUN: ToolOptions = {"effect": Effect.LOCAL, "timeout": MAX_SECONDS + 60, "max_result": 3 * PAGE_CHARS, "private": True}


@dataclass(frozen=True, slots=True)
class _Exec:
    services: Services
    commands: WorkspaceCommands

    async def lasting(self, arguments: ExecArguments, _caller: Caller) -> Change | None:
        """The command, as a person approves it."""
        return await self.commands.change(arguments.command, arguments.folder, arguments.hosts)

    async def kind(self, arguments: ExecArguments, _caller: Caller) -> ToolClass:
        """A command that reaches other hosts always asks."""
        return ToolClass.IRREVERSIBLE if arguments.hosts else ToolClass.RUN

    @tool("Running {command}", "Ran {command}", kind, lasting, **_RUN)
    async def exec(self, arguments: ExecArguments, caller: Caller) -> Labelled:
        """The real shell, on the workspace's files: network to `hosts` only, no terminal, nothing left running.

        sessions/, memory/ and your instructions are read-only; others' files are hidden until you read one.
        """
        output = BoundedOutput(KEPT_BYTES // 2, KEPT_BYTES // 2)
        async with self.commands.queued(Label.UNTRUSTED if arguments.hosts else caller.label) as permit:
            limits = Limits(seconds=arguments.seconds)
            running = await self.commands.start(arguments.command, arguments.folder, permit, limits, arguments.hosts)
            report = await running.followed(output.add, FLOOD_BYTES)
        if report.ending is Ending.REFUSED:
            raise ToolFailed.own("not_started", f"The command did not start: {report.problem}")
        text = await asyncio.to_thread(rendered, output.text())
        page = await self._page(text, permit, caller) if len(text) > PAGE_CHARS else {"output": text}
        return Labelled(
            {**command_ending(report, arguments.seconds, FLOOD_BYTES), **page, **changed_files(permit)}, permit.label
        )

    async def _page(self, text: str, permit: Permit, caller: Caller) -> JsonObject:
        """The beginning and the end of the output, and the path of a file with all of it."""
        half = PAGE_CHARS // 2
        path = f"command-output/{str(caller.task)[:8]}-{caller.ordinal}.txt"
        written = await self.services.workspace.write(path, text, permit.label, "text/plain", unlocked=True)
        note = f"[... {len(text) - PAGE_CHARS:,} characters are in {written.path} ...]"
        return {"output": f"{text[:half]}\n{note}\n{text[-half:]}", "path": written.path}


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool, if the kernel can confine commands."""
    commands = services.commands
    return declared(_Exec(services, commands)) if commands and commands.offered() else ()
