"""A model that says what a test tells it to, piece by piece, and waits where the test wants it to."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from gateway.domain.conversation.model import (
    Attempt,
    Highest,
    ModelEvent,
    ModelsExhausted,
    Prompt,
    Reply,
    Restarted,
    TextDelta,
    ThinkingDelta,
    Thought,
    ToolCall,
    Usage,
    Waiting,
)
from gateway.llm.client import Description


@dataclass
class Wait:
    """The model stops here until the test lets it go on."""

    reached: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class Fails:
    """The try breaks off, and what it said is void."""


Step = str | ThinkingDelta | Wait | Waiting | Fails | ToolCall | ModelsExhausted


@dataclass
class ScriptedModel:
    """Plays one script per call, in order; without a script it repeats the question."""

    scripts: list[Sequence[Step]] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)

    def says(self, *steps: Step) -> None:
        self.scripts.append(steps)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        self.prompts.append(prompt)
        script = self.scripts.pop(0) if self.scripts else (f"re: {prompt.messages[-1].text.partition('] ')[2]}",)
        text, thought, calls = "", "", []
        for step in script:
            match step:
                case str():
                    text += step
                    yield TextDelta(step)
                case ThinkingDelta():
                    thought += step.text
                    yield step
                case Wait():
                    step.reached.set()
                    await step.over.wait()
                case Fails():
                    text = ""
                    yield Restarted(Attempt("scripted", "overloaded", "try again"))
                case Waiting():
                    yield step
                case ToolCall():
                    calls.append(step)
                case ModelsExhausted():
                    raise step
        usage, made = Usage(11, 7, 0, 0.002, len(thought) // 4), Thought(thought, 12_300) if thought else None
        yield Reply(text, tuple(calls), usage, "scripted", 5, thought=made)

    def prompt_budget(self) -> int:
        return 100_000

    def highest(self, prompt: Prompt) -> Highest:
        return Highest()

    def describe(self) -> Description:
        return Description("scripted", "a test", ("scripted",), ())
