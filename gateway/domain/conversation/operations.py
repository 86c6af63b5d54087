"""Operations of an HTTP API that was declared: what a model gives, and where in a request each of it goes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from gateway.domain.conversation.tools import ToolClass
from gateway.domain.json import Json, JsonObject

Part: TypeAlias = Literal["path", "query", "header", "body"]
"""Of a request. What goes into the body without a name is the body."""


class Slot(NamedTuple):
    """Where an argument goes, and its name there."""

    part: Part
    name: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One of them; `name` is unique in its API, `path` is a template below the API's address."""

    name: str
    description: str
    method: str
    path: str
    slots: Mapping[str, Slot]
    """By argument."""
    schema: JsonObject
    """Of the arguments, as a model is shown it."""
    kind: ToolClass | None = None
    """As its owner confirmed it; None: by the method."""

    def kind_of(self, arguments: Mapping[str, Json]) -> ToolClass:
        """The class of a call: arguments tell the host something, though they may only be a question."""
        if self.kind is not None:
            return self.kind
        if self.method == "DELETE":
            return ToolClass.IRREVERSIBLE
        reads = self.method in ("GET", "HEAD")
        return ToolClass.NET if reads and not arguments else ToolClass.SEND

    @property
    def required(self) -> tuple[str, ...]:
        """The arguments that a call has to have."""
        found = self.schema.get("required")
        return tuple(map(str, found)) if isinstance(found, list | tuple) else ()
