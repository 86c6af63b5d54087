"""What a program that asks brings with its message: tools of its own, what they gave, and the form of the answer."""

import json
from dataclasses import asdict, dataclass
from typing import Self

from gateway.domain.conversation.model import ToolSpec
from gateway.domain.conversation.transcript import ToolResult
from gateway.domain.json import JsonObject
from gateway.domain.text.texts import storable


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Tools that the program runs itself, and what it asks of the answer.

    `must_call` is the tool that has to be called, "" for any, None for none. `answer_format` is OpenAI's
    `response_format`, None for plain text.
    """

    tools: tuple[ToolSpec, ...] = ()
    must_call: str | None = None
    answer_format: JsonObject | None = None
    agent: str = ""
    """Slug of the agent that is asked; "" for the one that people chat with."""

    def to_json(self) -> str:
        """As it is stored."""
        return storable(json.dumps(asdict(self), ensure_ascii=False))

    @classmethod
    def of(cls, stored: str | None) -> Self:
        """As `to_json` wrote it; None is nothing."""
        if stored is None:
            return cls()
        fields = json.loads(stored)
        tools = tuple(ToolSpec(**tool) for tool in fields.pop("tools"))
        return cls(tools, **fields)


NOTHING = ClientOptions()


@dataclass(frozen=True, slots=True)
class Brought:
    """What came with one message: `options` as JSON, and the results of calls that were handed to the program."""

    options: str | None = None
    results: tuple[ToolResult, ...] = ()
