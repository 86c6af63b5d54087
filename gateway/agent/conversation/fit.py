"""Shorten a prompt to a token budget; the last step before a model call."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias, assert_never

from gateway.domain.conversation.model import (
    AssistantMessage,
    PromptMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)

Estimate: TypeAlias = Callable[[str], int]
"""The tokens of a text, never underestimated."""

Round: TypeAlias = tuple[PromptMessage, ...]
"""A user message alone, or an assistant message with its tool results: never split."""

MAX_MESSAGE_TOKENS = 20_000
MESSAGE_OVERHEAD = 4
IMAGE_TOKENS = 1_100
"""Roughly; providers count by the size of a picture."""
LEFT_OUT = "[Older messages are left out here: the conversation is longer than the model can read.]"


def fit(
    messages: Sequence[PromptMessage],
    budget: int,
    estimate: Estimate,
    *,
    longest: int = MAX_MESSAGE_TOKENS,
    pinned: int = 0,
) -> tuple[PromptMessage, ...]:
    """The messages in at most `budget` (≥ 200) tokens.

    The oldest rounds are dropped first; the newest user message and the first `pinned` rounds stay.
    """
    weights = [message_tokens(message, estimate) for message in messages]
    if sum(weights) <= budget and max(weights, default=0) <= longest:
        return tuple(messages)
    system = tuple(message for message in messages if isinstance(message, SystemMessage))
    rest = [message for message in messages if not isinstance(message, SystemMessage)]
    capped = _shrunk(rest, longest, estimate)
    if _weight((*system, *capped), estimate) <= budget:
        return (*system, *capped)
    room = budget - message_tokens(UserMessage(f"{LEFT_OUT}\n\n"), estimate)
    newest = _newest(_rounds(capped), room - _weight(system, estimate), pinned, estimate)
    short, fitting = _squeezed(system, newest, room, estimate)
    return (*short, *(_marked(fitting) if len(fitting) < len(rest) else fitting))


def message_tokens(message: PromptMessage, estimate: Estimate) -> int:
    """Tokens of one message with its envelope, and with its provider's fields."""
    fields = message.fields if isinstance(message, AssistantMessage) else None
    return _own_tokens(message, estimate) + (fields.tokens if fields else 0)


def _own_tokens(message: PromptMessage, estimate: Estimate) -> int:
    tokens = MESSAGE_OVERHEAD + estimate(message.text)
    if isinstance(message, UserMessage | ToolMessage):
        tokens += IMAGE_TOKENS * len(message.images)
    elif isinstance(message, AssistantMessage):
        for call in message.calls:
            tokens += MESSAGE_OVERHEAD + estimate(call.id) + estimate(call.name) + estimate(call.arguments)
    return tokens


def even_out(texts: Sequence[str], room: int, estimate: Estimate) -> list[str]:
    """The texts, the longest cut to a common length, so that all together have `room` tokens."""
    level = _level([estimate(text) for text in texts], room)
    return [cut(text, level, estimate) for text in texts]


def cut(text: str, limit: int, estimate: Estimate) -> str:
    """Head and tail of a text, with a line between them that says how much is left out."""
    tokens = estimate(text)
    if tokens <= limit:
        return text
    keep = len(text) * (limit - estimate(_gap(len(text))) - 1) // tokens
    while keep > 0:
        tail = keep // 3
        short = f"{text[: keep - tail]}{_gap(len(text) - keep)}{text[len(text) - tail :]}"
        if estimate(short) <= limit:
            return short
        keep = keep * 4 // 5
    return ""


def _newest(rounds: Sequence[Round], room: int, pinned: int, estimate: Estimate) -> list[Round]:
    """The rounds without the oldest ones; the newest round and the newest user message stay."""
    users = [place for place, part in enumerate(rounds) if isinstance(part[0], UserMessage)]
    needed = {len(rounds) - 1, *users[-1:], *range(pinned)}
    weights = [_weight(part, estimate) for part in rounds]
    total, dropped = sum(weights), set[int]()
    for place, weight in enumerate(weights):
        if total <= room:
            break
        if place not in needed:
            dropped.add(place)
            total -= weight
    return [part for place, part in enumerate(rounds) if place not in dropped]


def _squeezed(
    system: Sequence[PromptMessage], newest: Sequence[Round], budget: int, estimate: Estimate
) -> tuple[tuple[PromptMessage, ...], tuple[PromptMessage, ...]]:
    """Cut the system text to half the budget at most, and the longest of the rest to a common length.

    Fields of a provider can't be cut, so they go first. If calls can't be cut enough, only the user's message stays.
    """
    messages = _flat(newest)
    if _weight((*system, *messages), estimate) > budget:
        messages = tuple(replace(m, fields=None) if isinstance(m, AssistantMessage) else m for m in messages)
    short = _level_off(system, max(budget // 2, budget - _weight(messages, estimate)), estimate)
    room = budget - _weight(short, estimate)
    fitting = _level_off(messages, room, estimate)
    if _weight(fitting, estimate) <= room:
        return short, fitting
    users = [part for part in newest if isinstance(part[0], UserMessage)]
    return short, _level_off(_flat(users[-1:]), room, estimate)


def _level_off(messages: Sequence[PromptMessage], room: int, estimate: Estimate) -> tuple[PromptMessage, ...]:
    """Cut the longest messages to a common length, so that all together have `room` tokens."""
    return _shrunk(messages, _level([message_tokens(message, estimate) for message in messages], room), estimate)


def _shrunk(messages: Sequence[PromptMessage], limit: int, estimate: Estimate) -> tuple[PromptMessage, ...]:
    return tuple(_shrink(message, limit, estimate) for message in messages)


def _shrink(message: PromptMessage, limit: int, estimate: Estimate) -> PromptMessage:
    if _own_tokens(message, estimate) <= limit:
        return message
    room = limit - MESSAGE_OVERHEAD
    match message:
        case SystemMessage(text):
            return SystemMessage(cut(text, room, estimate))
        case UserMessage(text, images):
            kept = images[-(room // 2 // IMAGE_TOKENS) :] if room >= 2 * IMAGE_TOKENS else ()
            return UserMessage(cut(text, room - IMAGE_TOKENS * len(kept), estimate), kept)
        case ToolMessage(call_id, text):  # its pictures are left out
            return ToolMessage(call_id, cut(text, room, estimate))
        case AssistantMessage():
            return _shrink_assistant(message, limit, estimate)
        case unreachable:
            assert_never(unreachable)


def _shrink_assistant(message: AssistantMessage, limit: int, estimate: Estimate) -> AssistantMessage:
    texts = [message.text, *(call.arguments for call in message.calls)]
    weights = [estimate(text) for text in texts]
    level = _level(weights, limit - (_own_tokens(message, estimate) - sum(weights)))
    calls = (ToolCall(call.id, call.name, _cut_arguments(call.arguments, level, estimate)) for call in message.calls)
    return replace(message, text=cut(message.text, level, estimate), calls=tuple(calls))


def _level(weights: Sequence[int], room: int) -> int:
    """The length to which all weights must be cut for their sum to be at most `room`."""
    for place, weight in enumerate(sorted(weights)):
        share = max(0, room) // (len(weights) - place)
        if weight > share:
            return share
        room -= weight
    return max(weights, default=0)


def _gap(missing: int) -> str:
    return f"\n[… {missing:,} characters are left out here …]\n"


def _cut_arguments(arguments: str, limit: int, estimate: Estimate) -> str:
    """The arguments cut, but still a JSON object: providers refuse anything else."""
    if estimate(arguments) <= limit:
        return arguments
    short = json.dumps({"cut": cut(arguments, limit // 2, estimate)}, ensure_ascii=False)
    return short if estimate(short) <= limit else "{}"


def _rounds(messages: Sequence[PromptMessage]) -> list[Round]:
    rounds: list[list[PromptMessage]] = []
    for message in messages:
        if isinstance(message, ToolMessage) and rounds:
            rounds[-1].append(message)
        else:
            rounds.append([message])
    return [tuple(part) for part in rounds]


def _marked(messages: Sequence[PromptMessage]) -> tuple[PromptMessage, ...]:
    """The messages after `LEFT_OUT`, which becomes part of a user message, since roles must alternate."""
    match messages:
        case [UserMessage(text, images), *later]:
            return (UserMessage(f"{LEFT_OUT}\n\n{text}", images), *later)
    return (UserMessage(LEFT_OUT), *messages)


def _flat(rounds: Sequence[Round]) -> tuple[PromptMessage, ...]:
    return tuple(chain.from_iterable(rounds))


def _weight(messages: Sequence[PromptMessage], estimate: Estimate) -> int:
    return sum(message_tokens(message, estimate) for message in messages)
