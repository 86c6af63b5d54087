"""An answer that reached the limit of its length: asked for the rest once, and said to be cut if that isn't enough."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import astuple, replace
from operator import add
from typing import TypeAlias

from gateway.domain.conversation.model import AssistantMessage, Prompt, TextDelta, ThinkingDelta, Usage, UserMessage
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import ProviderReply, ThinkingEnded

GO_ON = "The limit of its length cut your answer off. Go on exactly where it ended, without repeating anything."
FILTERED = "\n\n(The provider's content filter ended the answer here.)"
CUT = "\n\n(The answer ended here at its limit of {:,} tokens; `models.params.max_output_tokens` raises it.)"

AnswerEvent: TypeAlias = TextDelta | ThinkingDelta | ThinkingEnded | ProviderReply
Ask: TypeAlias = Callable[[Prompt], AsyncGenerator[AnswerEvent, None]]


async def whole_answer(ask: Ask, prompt: Prompt, limit: int) -> AsyncGenerator[AnswerEvent, None]:
    """Yield the events of an answer of at most `limit` tokens, and of its rest, with one reply; raises `ModelError`.

    Calls of an answer that was cut are not made: the last of them is not whole.
    """
    first: ProviderReply | None = None
    async with aclosing(ask(prompt)) as events:
        async for event in events:
            if isinstance(event, ProviderReply) and event.finish == "length":
                first = event
            elif isinstance(event, ProviderReply) and event.finish == "content_filter" and prompt.answer_format is None:
                yield TextDelta(FILTERED)
                yield replace(event, text=f"{event.text}{FILTERED}")
            else:
                yield event
    if first is None:
        return
    if first.calls:
        limited = f"its limit of {limit:,} tokens (models.params.max_output_tokens)"
        raise ModelError(ErrorKind.BAD_REQUEST, f"the answer reached {limited} in a tool call, which was not made")
    if prompt.answer_format is not None:  # a program can tell by itself that it is cut
        yield first
        return
    async with aclosing(_rest(ask, prompt, first)) as rest:
        async for event in rest:
            if isinstance(event, ProviderReply) and event.finish == "length":
                yield TextDelta(note := CUT.format(limit))
                yield replace(event, text=f"{event.text}{note}")
            else:
                yield event


async def _rest(ask: Ask, prompt: Prompt, first: ProviderReply) -> AsyncGenerator[AnswerEvent, None]:
    """Yield the rest, then the reply with both; without a rest the first one, as cut as it is."""
    messages = (*prompt.messages, AssistantMessage(first.text, fields=first.fields), UserMessage(GO_ON))
    written = ""
    try:
        async with aclosing(ask(replace(prompt, messages=messages, tools=()))) as events:
            async for event in events:
                match event:
                    case TextDelta(text):
                        written += text
                        yield event
                    case ProviderReply():
                        usage, text = _both(first.usage, event.usage), first.text + event.text
                        thought, fields = first.thought + event.thought, first.fields or event.fields
                        yield replace(event, text=text, calls=(), usage=usage, fields=fields, thought=thought)
    except ModelError:
        yield replace(first, text=first.text + written)


def _both(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return None
    return Usage(*map(add, astuple(one), astuple(other)))
