"""The part of a request that a server says its model doesn't take, in whatever words."""

import re
from collections.abc import Collection, Mapping, Set

from gateway.domain.conversation.model import Prompt
from gateway.domain.json import Json
from gateway.domain.settings import CallParams
from gateway.llm.error_words import OUTPUT_BOUND
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.wire import given_back, lacks_fields, texts_of
from gateway.llm.refusals import THINKING

_OPTIONAL = (
    "tools",
    "tool_choice",
    "response_format",
    "stream_options",
    "temperature",
    "top_p",
    "max_completion_tokens",
    "max_tokens",
)
"""Fields without which an answer is still an answer."""
GIVEN_BACK = "fields of its own"
OTHERS_CALLS = "calls without fields of its own"
OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_OF_THINKING = frozenset({"reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"})
_WANTED = re.compile(
    r"(?si)(?=.*(reasoning_(content|details)|thought_?signature|redacted_thinking))"
    r".*(missing|must (be|start)|required|back)"
)
_NOT_TAKEN = re.compile(
    r"support|unrecognized|unknown|unexpected|extra (inputs|fields)|not (permitted|allowed|available|enabled)"
    r"|deprecated|disabled|requires|unavailable|only (the default|\S+ is allowed)|no endpoints|cannot find field"
    r"|remove the",
    re.IGNORECASE,
)
_TOOL_WORDS = re.compile(r"\btools?\b|tool[ _-]?(use|choice|call)|function[ _-]?call|\bfunctions\b", re.IGNORECASE)
_THINKING_WORDS = re.compile(r"thinking|reasoning|\beffort\b", re.IGNORECASE)


def refused_part(
    error: ModelError,
    prompt: Prompt,
    body: Mapping[str, Json],
    params: CallParams,
    source: str,
    before: Set[str],
    named: Collection[str | None] = (),
) -> str | None:
    """The part that the request may not have; None if the server says something else.

    It is an optional field, the fields that the server itself sent, or others' calls, which lack them. `named` are the
    fields that the server names apart from its words, `before` is what it refused before.
    """
    status = error.status or 0
    if status in (401, 402, 403, 408, 429):
        return None
    error = error.without_quotes(texts_of(prompt))
    if OTHERS_CALLS not in before and _WANTED.match(error.words) and lacks_fields(prompt, source):
        return OTHERS_CALLS
    if not (_NOT_TAKEN.search(error.words) or str(error.code).startswith("unsupported_")):
        return None

    def is_named(name: str) -> bool:
        return name in named or bool(re.search(rf"\b{re.escape(name)}\b", error.words))

    if any(map(is_named, given_back(prompt, source))):
        return GIVEN_BACK
    if "tools" in body and ({"tools", "tool_choice", "functions"} & {*named} or _TOOL_WORDS.search(error.words)):
        return "tools"
    if status >= 500 or error.kind is ErrorKind.CONTEXT_LENGTH or OUTPUT_BOUND.search(error.words):
        return None
    if _OF_THINKING & body.keys() and (_OF_THINKING & {*named} or _THINKING_WORDS.search(error.words)):
        return f"{THINKING}{params.thinking}"
    return next((field for field in _OPTIONAL if field in body and is_named(field)), None)
