"""The agent's tools: one family per file, each a function `tools(services)` that answers its tools."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from gateway.domain.errors import OwnerMustAct
from gateway.domain.tools import AnyTool
from gateway.workspace.tree import Workspace


class RecordFile(Protocol):
    """Notes in the database what a file of the workspace now is; `size` is in bytes."""

    async def __call__(self, path: str, size: int, mime: str, sha256: str) -> None:
        """Insert or replace the record."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What the tools of one principal may use."""

    workspace: Workspace
    record_file: RecordFile


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
