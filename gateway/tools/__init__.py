"""The agent's tools: one family per file, each a function `tools(services)` that answers its tools."""

import importlib
import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from gateway.domain.clock import Clock
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import MessageId, PrincipalId
from gateway.domain.principals import Label, Role
from gateway.domain.tools import AnyTool, ToolFailed
from gateway.store.pool import Connection
from gateway.workspace.tree import Workspace

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ReadFile:
    """What was read out of a file that is no text: where the text is, "" when there is none, `problem` says why."""

    text_path: str
    pages: int
    problem: str


FindRead: TypeAlias = Callable[[str], Awaitable[ReadFile | None]]
"""Looks up what was read out of a file of the workspace; None when nobody has read it."""


async def nothing_read(_path: str) -> ReadFile | None:
    """Where no file is ever read."""
    return None


class RecordFile(Protocol):
    """Notes in the database what a file of the workspace now is; `size` is in bytes, `label` that of its writer."""

    async def __call__(self, path: str, size: int, mime: str, sha256: str, label: Label) -> None:
        """Insert or replace the record."""
        ...


@dataclass(frozen=True, slots=True)
class Posted:
    """Where something was said, and which entry of the transcript it became."""

    channel: str
    message_id: MessageId


Post: TypeAlias = Callable[[str, str | None, str | None], Awaitable[Posted]]
"""Says a text in a chat of the principal's own, on a channel (None: where they wrote last), with the file at a path.

Queued when it returns; raises `ToolFailed`.
"""


async def nowhere(_text: str, _to: str | None, _path: str | None) -> Posted:
    """Where there are no chats."""
    raise ToolFailed("unavailable", "Nothing can be sent from here.")


class Transact(Protocol):
    """Runs work in one transaction on a store that holds nothing but the principal's own, again after a deadlock."""

    async def __call__(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Committed when it returns; what `work` raises rolls it back."""
        ...


@dataclass(frozen=True, slots=True)
class Own:
    """Whom the tools work for, and what the database knows of them; `zone` is their time zone, None while unknown."""

    principal: PrincipalId
    role: Role
    transact: Transact
    clock: Clock
    zone: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Services:
    """What the tools of one principal may use."""

    workspace: Workspace
    record_file: RecordFile
    post: Post = nowhere
    find_read: FindRead = nothing_read
    own: Own | None = None


Family: TypeAlias = Callable[[Services], tuple[AnyTool, ...]]


def discover(package: str = __name__) -> tuple[Family, ...]:
    """Every tool family of the package, by file name; raises `OwnerMustAct` when one cannot be loaded."""
    folder = importlib.import_module(package).__path__
    return tuple(_family(f"{package}.{module.name}") for module in pkgutil.iter_modules(folder))


def _family(name: str) -> Family:
    try:
        module = importlib.import_module(name)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise OwnerMustAct(f"The tool file {name} cannot be loaded; correct or remove it. {reason}") from error
    family: Family | None = getattr(module, "tools", None)
    if not callable(family):
        raise OwnerMustAct(f"The tool file {name} has no function tools(services); add it or remove the file.")
    return family
