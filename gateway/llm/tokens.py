"""Estimates the tokens of a request: its texts plus the provider's framing."""

import json
from typing import assert_never

from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    PromptMessage,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from gateway.domain.text.tokens import estimate

_PER_MESSAGE = 4
_PER_TOOL = 8
_PER_IMAGE = 1_100


def estimate_prompt(prompt: Prompt) -> int:
    """The tokens of a whole request, tools included."""
    return sum(map(_message, prompt.messages)) + sum(map(estimate_tool, prompt.tools))


def estimate_tool(spec: ToolSpec) -> int:
    """The tokens that one tool adds to every request."""
    return _PER_TOOL + estimate(f"{spec.name} {spec.description} {json.dumps(spec.parameters, ensure_ascii=False)}")


def _message(message: PromptMessage) -> int:
    match message:
        case SystemMessage(text) | ToolMessage(_, text):
            return _PER_MESSAGE + estimate(text)
        case UserMessage(text, images):
            return _PER_MESSAGE + estimate(text) + _PER_IMAGE * len(images)
        case AssistantMessage(text, calls):
            made = sum(_PER_TOOL + estimate(call.name) + estimate(call.arguments) for call in calls)
            return _PER_MESSAGE + estimate(text) + made
        case unreachable:
            assert_never(unreachable)
