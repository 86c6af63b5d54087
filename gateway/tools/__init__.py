"""The agent's tools: one family per file, each a function `tools(services)` that returns its tools.

Most are methods of a class, each declared by `tool`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from gateway.agent.exec.commands import WorkspaceCommands
from gateway.agent.exec.processes import Processes
from gateway.agent.memory.search import MemorySearch
from gateway.agent.skills.library import Skills
from gateway.agent.tool_sources import ToolSource
from gateway.agent.work.plans import Plans
from gateway.agent.work.task_trees import Trees
from gateway.agent.work.todo_lists import TodoLists
from gateway.config.plugins import offers
from gateway.domain.conversation.model import Image
from gateway.domain.conversation.tools import (
    AnyTool,
    ArgumentRole,
    Caller,
    Change,
    Effect,
    Labelled,
    Tool,
    ToolClass,
    ToolFailed,
    Wording,
)
from gateway.domain.ids import MessageId, PrincipalId, TaskId
from gateway.domain.json import Json
from gateway.domain.memory.memories import ALL_MEMORIES, MemoryAccess
from gateway.domain.principals import Label, Role
from gateway.domain.time import Clock
from gateway.net.addresses import Rules
from gateway.net.fetch import WebPage
from gateway.net.search import WebSearcher
from gateway.sandbox.virtual.shell import ShellResult
from gateway.store.connection.pool import Connection
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.locks import LockWatch

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ReadFile:
    """The text extracted from a binary file: its path, or "" if there is none; then `problem` says why."""

    text_path: str
    pages: int
    problem: str
    view_path: str = ""
    beside: str = ""
    """The path of its pages without their suffix; "" if that is the file's own."""


FindRead: TypeAlias = Callable[[str], Awaitable[ReadFile | None]]
"""Looks up the text extracted from a workspace file; None if the file was not processed."""


async def no_extracted_text(_path: str) -> ReadFile | None:
    """A `FindRead` for agents without text extraction."""
    return None


@dataclass(frozen=True, slots=True)
class Posted:
    """A sent message: its channel, and its entry in the transcript."""

    channel: str
    message_id: MessageId


Post: TypeAlias = Callable[[str, str | None, str | None, Caller], Awaitable[Posted]]
"""Sends a text to one of the principal's own chats, with an optional file.

The arguments are the text, the channel (None: where the principal wrote last), the path of the file and the caller. The
message is queued when this returns; raises `ToolFailed`.
"""


async def no_chats(_text: str, _to: str | None, _path: str | None, _caller: Caller) -> Posted:
    """A `Post` for agents without chats."""
    raise ToolFailed.own("unavailable", "Nothing can be sent from here.")


class Transact(Protocol):
    """Runs work in one transaction that sees the principal's own rows only; retries after a deadlock."""

    async def __call__(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Run `work` and commit; an exception from `work` rolls back."""


@dataclass(frozen=True, slots=True)
class PageText:
    """The text of the page at `url`, with the addresses of its links; `problem` says what could not be read."""

    url: str
    title: str
    text: str
    links: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Web:
    """The web for tools; `read` extracts a page's text and raises `NetError`."""

    rules: Callable[[], Rules]
    search: WebSearcher
    read: Callable[[WebPage], Awaitable[PageText]]


@dataclass(frozen=True, slots=True)
class PrincipalContext:
    """The principal that the tools act for, and their database; `zone` returns their time zone, None if unknown."""

    principal: PrincipalId
    role: Role
    transact: Transact
    clock: Clock
    zone: Callable[[], str | None]
    search: MemorySearch | None = None
    reach: MemoryAccess = ALL_MEMORIES


@dataclass(frozen=True, slots=True)
class ShellScript:
    """A script, its input files and pages with their `label`, and the paths of the files to save."""

    text: str
    files: Mapping[str, bytes]
    pages: Mapping[str, bytes]
    save: Sequence[str]
    label: Label


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """The result of a script, the files that it saved, and the label of its whole turn."""

    result: ShellResult
    saved: Mapping[str, bytes]
    label: Label


RunScript: TypeAlias = Callable[[TaskId, ShellScript], Awaitable[ScriptRun]]
"""Runs a script on the virtual files of a turn; raises `ToolFailed`."""


@dataclass(frozen=True, slots=True)
class Bash:
    """The virtual shell, and the addresses that its curl may read, each with everything below it."""

    run: RunScript
    allow_urls: Callable[[], Sequence[str]]


Keep: TypeAlias = Callable[[str], Awaitable[Json]]
"""Makes a checkpoint of the workspace with this reason; raises `SupaclawError`."""
Find: TypeAlias = Callable[..., Awaitable[Json]]
"""`workspace.search.search` in a separate process, with a time limit."""


@dataclass(frozen=True, slots=True)
class Services:
    """The services that the tools of one principal may use."""

    workspace: Workspace
    post: Post = no_chats
    find_read: FindRead = no_extracted_text
    context: PrincipalContext | None = None
    web: Web | None = None
    skills: Skills | None = None
    commands: WorkspaceCommands | None = None
    """None for everybody except the owner."""
    processes: Processes | None = None
    """None for everybody except the owner."""
    locks: LockWatch | None = None
    todo_lists: TodoLists | None = None
    plans: Plans | None = None
    """None for everybody except the owner."""
    keep: Keep | None = None
    find: Find | None = None
    sources: Sequence[ToolSource] = ()
    trees: Trees | None = None
    engine: Transact | None = None
    """The gateway's own transactions, which start task trees: tools have no access to the engine's rows."""
    bash: Bash | None = None


class ToolOptions(TypedDict, total=False):
    """Fields of a `Tool` that most leave as they are."""

    effect: Effect
    timeout: float
    max_result: int
    private: bool
    roles: Mapping[str, ArgumentRole]


Run: TypeAlias = Callable[[Any, Any, Caller], Awaitable[Labelled]]
Kind: TypeAlias = ToolClass | Callable[[Any, Any, Caller], Awaitable[ToolClass]]
Lasting: TypeAlias = Callable[[Any, Any, Caller], Awaitable[Change | None]]


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A method that is a tool; `kind` and `lasting` are methods of the same object."""

    run: Run
    wording: Wording
    kind: Kind
    lasting: Lasting | None
    options: ToolOptions

    def of(self, family: object) -> AnyTool:
        """The tool of this object: it is called like the method, and described by its docstring."""
        return Tool(
            self.run.__name__,
            " ".join((self.run.__doc__ or "").split()),
            self.run.__annotations__["arguments"],
            partial(self.run, family),
            kind=self.kind if isinstance(self.kind, ToolClass) else partial(self.kind, family),
            lasting=self.lasting and partial(self.lasting, family),
            wording=self.wording,
            **self.options,
        )


def tool(
    running: str, ran: str, kind: Kind, lasting: Lasting | None = None, **options: Unpack[ToolOptions]
) -> Callable[[Run], DeclaredTool]:
    """Declare a method as a tool; a call is shown as `running` and `ran`, and everything else is as in `Tool`."""
    return lambda run: DeclaredTool(run, Wording(running, ran), kind, lasting, options)


def declared(family: object) -> tuple[AnyTool, ...]:
    """The tools that the class of this object declares, in order."""
    return tuple(each.of(family) for each in vars(type(family)).values() if isinstance(each, DeclaredTool))


MAX_PICTURE_BYTES = 400_000


async def file_picture(workspace: Workspace, path: str) -> tuple[Image, ...]:
    """The picture made of a file; none if there is none, or if it is too large."""
    data = await file_content(workspace, path, MAX_PICTURE_BYTES + 1)
    return (Image("image/jpeg", data),) if 0 < len(data) <= MAX_PICTURE_BYTES else ()


async def file_content(workspace: Workspace, path: str, limit: int) -> bytes:
    """The bytes of a file; empty if it is gone or not a file any more."""
    if path:
        with suppress(WorkspaceError):
            return await workspace.content(path, limit) or b""
    return b""


Family: TypeAlias = Callable[[Services], tuple[AnyTool, ...]]


def discover(package: str = __name__) -> tuple[Family, ...]:
    """All tool families of the package, by file name; raises `OwnerMustAct` if one can't be loaded."""
    return tuple(family for _, family in offers(package, "tools", Callable))
