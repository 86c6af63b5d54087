"""Answers from a script, without a model."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gateway.domain.conversation.model import Prompt, TextDelta, ToolCall, Usage
from gateway.domain.settings import Params
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Provider, ProviderEvents, ProviderReply


@dataclass(frozen=True, slots=True)
class Say:
    """Stream these pieces, wait for the event, then fail or answer with the pieces and calls."""

    pieces: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    wait_for: asyncio.Event | None = None
    error: ModelError | None = None
    finish: str = "stop"


Line: TypeAlias = Say | ModelError | str
Script: TypeAlias = Sequence[Line] | Callable[[str, Prompt], Line]


class ScriptedProvider(Provider):
    """Plays a list line by line, or calls a function; records every prompt. An exhausted list fails the attempt."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[tuple[str, Prompt]] = []
        self.closed = 0

    async def stream(self, model: str, prompt: Prompt, _params: Params, /) -> ProviderEvents:
        """Play the next line."""
        self.requests.append((model, prompt))
        try:
            say = _say(self._line(model, prompt))
            for piece in say.pieces:
                yield TextDelta(piece)
            if say.wait_for is not None:
                await say.wait_for.wait()
            if say.error is not None:
                raise say.error
            yield ProviderReply("".join(say.pieces), say.calls, say.usage, say.finish)
        finally:
            self.closed += 1

    def _line(self, model: str, prompt: Prompt) -> Line:
        if callable(self._script):
            return self._script(model, prompt)
        if len(self.requests) > len(self._script):
            return ModelError(ErrorKind.BAD_REQUEST, "the script has no more lines")
        return self._script[len(self.requests) - 1]


def _say(line: Line) -> Say:
    if isinstance(line, str):
        return Say((line,))
    return Say(error=line) if isinstance(line, ModelError) else line
