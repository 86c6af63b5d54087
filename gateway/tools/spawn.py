"""Commands that run between turns: started in one turn, read, written to and ended in others."""

from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Annotated, Literal, assert_never

from pydantic import Field, StringConstraints

from gateway.agent.exec.commands import STALE, changed_files, command_ending
from gateway.agent.exec.processes import Process, Processes
from gateway.agent.exec.terminal import HEIGHT, MAX_PADDING, Screen, rendered
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
from gateway.domain.errors import required
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.sandbox.command import Ending
from gateway.tools import Services, ToolOptions, declared, tool

PAGE_BYTES = 8_000
MAX_WAIT = 30
MAX_SECONDS = 24 * 3600
GONE = (
    "It isn't running: it ended long ago, or when the gateway was restarted, which ends every process. Start it anew."
)


KEYS = {
    "enter": "\r", "tab": "\t", "escape": "\x1b", "space": " ", "backspace": "\x7f", "delete": "\x1b[3~",
    "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
    "home": "\x1b[1~", "end": "\x1b[4~", "page-up": "\x1b[5~", "page-down": "\x1b[6~",
} | {f"ctrl-{letter}": chr(ord(letter) & 31) for letter in ascii_lowercase}  # fmt: skip
"""The codes that a terminal sends for keys."""
Key = Annotated[str, StringConstraints(pattern=f"^(ctrl-[a-z]|{'|'.join(key for key in KEYS if key[:5] != 'ctrl-')})$")]


class SpawnArguments(ToolArguments):
    """Arguments of spawn."""

    action: Literal["start", "poll", "write", "kill", "list"]
    command: str | None = Field(None, max_length=60_000)
    seconds: int = Field(3600, ge=1, le=MAX_SECONDS, description="Time limit")
    process: str | None = None
    pty: bool = Field(False, description="In a terminal; poll shows its screen")
    rows: int = Field(24, ge=2, le=HEIGHT)
    columns: int = Field(80, ge=10, le=MAX_PADDING)
    input: Annotated[str, StringConstraints(strip_whitespace=False)] | None = Field(None, description="A line")
    keys: list[Key] | None = Field(None, description="In a terminal, after the input instead of enter")
    end_input: bool = False
    since: int | None = Field(None, description="Read again from here")
    wait: float = Field(1, ge=0, le=MAX_WAIT, description="For output")


_RUN: ToolOptions = {"effect": Effect.LOCAL, "timeout": MAX_WAIT + 60, "max_result": 3 * PAGE_BYTES, "private": True}


@dataclass(frozen=True, slots=True)
class _Spawn:
    processes: Processes

    async def kind(self, arguments: SpawnArguments, caller: Caller) -> ToolClass:
        """A run may end the processes of its own conversation without approval."""
        if arguments.action in {"poll", "list"}:
            return ToolClass.READ
        process = self.processes.get(arguments.process or "")
        own = process is not None and process.session == caller.session
        return ToolClass.WRITE if arguments.action == "kill" and own else ToolClass.RUN

    async def lasting(self, arguments: SpawnArguments, _caller: Caller) -> Change | None:
        """The command, or the input and the process that gets it."""
        if arguments.action == "start":
            change = await self.processes.commands.change(_required(arguments.command, "command"), ".")
            where = " in a terminal" if arguments.pty else ""
            more = f"It may go on{where} for {arguments.seconds} s, after this turn, too."
            return replace(change, preview=f"{change.preview}\n{more}")
        process = self.processes.get(_required(arguments.process, "process"))
        if process is None or process.report:
            return None
        end = "\nand end its input" if arguments.end_input else ""
        keys = f"\nand these keys: {' '.join(arguments.keys)}" if arguments.keys else ""
        types = f"Type this into it{end}:\n{arguments.input or ''}{keys}\n\nThe process"
        does = "Kill" if arguments.action == "kill" else types
        seen = "" if arguments.action == "kill" else await self.processes.commands.seen(arguments.input or "")
        return Change(f"{does}: {process.line}", f"{process.id} {seen}", STALE)

    @tool("Process ({action}): {command}", "Process ({action}): {command}", kind, lasting, **_RUN)
    async def spawn(self, arguments: SpawnArguments, caller: Caller) -> Labelled:
        """As exec, for commands that go on between turns. They stop when the gateway stops."""
        match arguments.action:
            case "start":
                screen = Screen(arguments.rows, arguments.columns) if arguments.pty else None
                line = _required(arguments.command, "command")
                process = await self.processes.start(line, arguments.seconds, caller, screen)
            case "list":
                return self._list()
            case "poll" | "write" | "kill":
                found = self.processes.get(_required(arguments.process, "process"))
                if found is None:
                    return Labelled({"process": arguments.process, "running": False, "ended": GONE}, Label.OWNER)
                process = found
            case _:
                assert_never(arguments.action)
        if arguments.action == "write":
            end = arguments.end_input and process.screen is None
            await self.processes.write(process, _typed(process, arguments), caller.label, end=end)
        if arguments.action == "kill":
            await self.processes.kill(process)
        return await _page(process, arguments)

    def _list(self) -> Labelled:
        found: list[Json] = [
            {"process": each.id, "command": each.line[:200], **_state(each), "unread": each.output.size - each.read}
            for each in self.processes.all
        ]
        return Labelled({"processes": found}, max((each.label for each in self.processes.all), default=Label.OWNER))


def _typed(process: Process, arguments: SpawnArguments) -> str:
    """The input, which a terminal's enter ends as another line's end does; with the keys, where it has some."""
    text, is_line = arguments.input or "", arguments.input is not None or not arguments.end_input
    if process.screen is None and arguments.keys is not None:
        raise ToolFailed.own("no_terminal", f"{process.id} has no keys: it wasn't started with pty.")
    if process.screen is None:
        return f"{text}\n" if is_line else ""
    keys = arguments.keys if arguments.keys is not None else ["enter"] * is_line
    return "".join([text, *(KEYS[key] for key in (*keys, *["ctrl-d"] * arguments.end_input))])


async def _page(process: Process, arguments: SpawnArguments) -> Labelled:
    if process.screen:
        screen = await process.until_drawn(process.screen, arguments.wait)
        shown: dict[str, Json] = {"screen": screen.text, "cursor": [screen.row + 1, screen.column + 1]}
        return Labelled({"process": process.id, **_state(process), **shown}, process.label)
    since = process.read if arguments.since is None else max(0, arguments.since)
    await process.until_news(since, arguments.wait)
    text, dropped, after = process.output.page(since, PAGE_BYTES, whole=process.report is not None)
    process.read = max(process.read, after)
    more: dict[str, Json] = {"more": process.output.size - after} if after < process.output.size else {}
    if dropped:
        more["dropped"] = f"{dropped:,} bytes before this page are no longer kept"
    return Labelled(
        {"process": process.id, **_state(process), "output": rendered(text), "next": after, **more}, process.label
    )


def _state(process: Process) -> dict[str, Json]:
    if process.report is None:
        return {"running": True}
    ending = command_ending(process.report, process.seconds, 0)
    if process.report.ending is Ending.CANCELLED:
        ending["ended"] = "It was killed, with all it had started."
    return {"running": False, **ending, **(changed_files(process.permit) if process.permit else {})}


def _required(value: str | None, name: str) -> str:
    return required(value or None, ToolFailed.own("invalid_arguments", f"{name} is missing."))


def tools(services: Services) -> tuple[AnyTool, ...]:
    """The tool, where `exec` is available."""
    processes = services.processes
    return declared(_Spawn(processes)) if processes and processes.commands.offered() else ()
