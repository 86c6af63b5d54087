"""A model that says what a test tells it to say, and tools to go with it."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pydantic import BaseModel

from gateway.agent.toolbox import Toolbox
from gateway.domain.conversation.model import ModelEvent, Prompt, Reply, SystemMessage, ToolCall, Usage
from gateway.domain.conversation.tools import Caller, Effect, Labelled, Tool
from gateway.domain.conversation.transcript import Entry, UserText
from gateway.domain.principals import Label
from tests.fakes.toolboxes import toolbox_of

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SMALL = Usage(10, 5)


def said(text: str) -> UserText:
    return UserText(text, NOON)


def reply(text: str = "", *calls: ToolCall, usage: Usage = SMALL) -> Reply:
    return Reply(text, calls, usage, "scripted", 1)


def call(name: str, id: str = "", **arguments: object) -> ToolCall:
    return ToolCall(id, name, json.dumps(arguments))


def stringify(entries: Sequence[Entry], _label: Label = Label.OWNER) -> Prompt:
    """A prompt that simply shows the transcript."""
    return Prompt(tuple(SystemMessage(repr(entry)) for entry in entries))


@dataclass
class ScriptedModel:
    """Each call of `stream` plays the next list of events; the prompts it was given are kept."""

    script: list[list[ModelEvent | Exception]]
    prompts: list[Prompt] = field(default_factory=list)
    closed: int = 0

    @classmethod
    def of(cls, *replies: Reply) -> "ScriptedModel":
        return cls([[reply] for reply in replies])

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        self.prompts.append(prompt)
        try:
            for event in self.script.pop(0):
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            self.closed += 1


class Word(BaseModel):
    text: str = ""


@dataclass
class Workshop:
    """Tools that note what they did: `look` and `put` may run twice, `send` may not; `wait` ends when told."""

    ran: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    go: dict[str, asyncio.Event] = field(default_factory=dict)
    most_at_once: int = 0
    _now: int = 0

    @property
    def toolbox(self) -> Toolbox:
        return toolbox_of(
            [
                Tool("look", "Looks.", Word, self.look),
                Tool("put", "Puts.", Word, self.look, Effect.IDEMPOTENT),
                Tool("send", "Sends.", Word, self.look, Effect.ONCE),
                Tool("wait", "Waits.", Word, self.wait),
                Tool("breathe", "Lets others run.", Word, self.breathe),
                Tool("count", "Answers another number each time.", Word, self.count),
            ],
            self._spill,
        )

    async def look(self, word: Word, caller: Caller) -> Labelled:
        self.ran.append(word.text)
        return Labelled.own({"seen": word.text})

    async def count(self, _word: Word, caller: Caller) -> Labelled:
        self.ran.append("count")
        return Labelled.own({"count": len(self.ran)})

    async def breathe(self, word: Word, caller: Caller) -> Labelled:
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        for _ in range(5):
            await asyncio.sleep(0)
        self._now -= 1
        return await self.look(word, caller)

    async def wait(self, word: Word, caller: Caller) -> Labelled:
        self.started.set()
        try:
            await self.go.setdefault(word.text, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.cancelled.append(word.text)
            raise
        return await self.look(word, caller)

    async def _spill(self, name: str, _text: str, _label: Label) -> str:
        return name
