"""The part of a request that a server says its model doesn't take, in whatever words."""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from gateway.domain.conversation.model import Prompt
from gateway.domain.json import Json, JsonObject
from gateway.domain.settings import CallParams, ThinkingLevel
from gateway.llm.error_words import OUTPUT_BOUND
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.local_servers import LOCAL_WINDOW, cuts_prompts
from gateway.llm.prices import estimate_prompt
from gateway.llm.protocol.thinking import ThinkingFilter
from gateway.llm.protocol.wire import (
    Calls,
    alternating,
    given_back,
    has_images,
    lacks_fields,
    messages_json,
    plain_tools,
    texts_of,
    without_images,
)
from gateway.llm.provider import ProviderEvents, ProviderReply, ThinkingEnded
from gateway.llm.vendors import CONTEXT, CUTS, IMAGES, THINKING, Endpoint, split_model

log = structlog.get_logger(__name__)

CHAT = "chat completions"
"""The API that isn't used for a model; it is asked by the Responses API."""
_NOT_BY_CHAT = re.compile(
    r"v1/responses|responses api|(chat/?completions?\b|\bchatCompletion\b).{0,40}(support|accessible|not work)"
    r"|not (supported|accessible|available)\b.{0,40}chat/completions",
    re.IGNORECASE,
)
SUMMARY = "reasoning.summary"
"""Asks for a summary of the reasoning; OpenAI gives verified organisations alone one."""
_SAMPLING = ("temperature", "top_p", "max_completion_tokens", "max_tokens")
_OPTIONAL = ("tools", "tool_choice", "response_format", "stream_options", "include", *_SAMPLING, "stream")
"""Fields without which an answer is still an answer."""
_TRIFLES = ("temperature", "top_p", "stream_options", "include")
"""Those of which any complaint is a refusal."""
GIVEN_BACK = "fields of its own"
OTHERS_CALLS = "calls without fields of its own"
_NEEDED = {"tools": {"tool_choice"}, "stream": {"stream_options"}}
"""Fields, and those that mean nothing without them."""
OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
SCHEMAS = "keywords of the tools' schemas"
_SCHEMA = re.compile(r"function_?(decl|param)|(?<!in )schema|grammar|tools?[\w.\[\]]*param", re.IGNORECASE)
_OF_THINKING = frozenset({"reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"})
ORDER = "messages of one role in a row"
_ALTERNATE = re.compile(
    r"(?is)(roles?|messages?)\b.{0,80}(\balternat|in a row)|unexpected role(?!\W+system)|consecutive|same role|交替"
)
SYSTEM = "messages of the system"
_NO_SYSTEM = re.compile(
    r"(?i)system (role|message).{0,20} (not|must)|(role|port|got|支持)\W{1,3}system|developer inst|user\W.{0,6}assist"
)
_SAID = ((CHAT, _NOT_BY_CHAT), (ORDER, _ALTERNATE), (SYSTEM, _NO_SYSTEM))
_WANTED = re.compile(
    r"(?si)(?=.*(reasoning_(content|details)|thought_?signature|redacted_thinking))"
    r".*(missing|must (be|start)|required|back)"
)
_NOT_TAKEN = re.compile(
    r"support|unrecognized|unknown|unexpected|extra (inputs|fields)|not (permitted|allowed|available|enabled)"
    r"|deprecated|disabled|requires|unavailable|no endpoints|cannot find field|remove the|invalid for this|not a valid"
    r"|instead of|(can't|cannot) (use|call)|not (accepted|implemented)|(must|should) be (one of|in\b|between|'|null)"
    r"|must be (empty|false)|n[o']t (able|capable)|lacks?\b|\bno.{0,20}capabilit|illegal|no provider|不支持|対応し",
    re.IGNORECASE,
)
_TOOL_WORDS = re.compile(r"\btools?\b|tool[ _-]?(use|choice|call)|function[ _-]?call|\bfunctions\b|工具|ツール", re.I)
_NO_IMAGES = re.compile(
    r"\b(images?|image_url|pictures?|attachments)\b|vision|multi-?modal|content.{1,17}be a.{0,7}string|text.only"
    r"|only (accepts )?text|non-text|content (part|type)|interface \{\}|\.content\b.{0,20}str|be (in )?\W{1,2}text|图",
    re.IGNORECASE,
)
_FAULTY_IMAGE = re.compile(
    r"(invalid|unsupported|corrupt\w*|valid|at most [1-9]\d*) (base64 )?image\b(?! input)"
    r"|(could not|unable to|failed to|cannot) (process|decode|load|identify|read|open|fetch|download)\b.{0,30}\bimage"
    r"|\bimages?\b.{0,60}(too (large|big|small|many)|exceed|dimension|corrupt|truncated|unknown format|(not |in)valid)",
    re.IGNORECASE | re.DOTALL,
)
"""Of a picture, not of the model."""
FAULTY = "pictures, one of which is faulty"
_NOT_SHOWN = "\n(A picture here was refused as too large or damaged, so you get none of them: say so.)"
_THINKING_WORDS = re.compile(r"thinking|reasoning|\beffort\b|\bthink value|思考", re.IGNORECASE)
_ALSO = {"stream": r"|\b[Ss]treaming\b|流式", "stream_options": r"|streamOptions|include_usage"}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The `parts` that a request to one model leaves out; `own` is the source of its fields."""

    parts: frozenset[str]
    own: str

    @property
    def source(self) -> str:
        """The source whose fields the model gets back; "" once it has refused them."""
        return "" if GIVEN_BACK in self.parts else f"{self.own}/responses" if self.by_responses else self.own

    @property
    def by_responses(self) -> bool:
        """Whether the model is asked by the Responses API."""
        return CHAT in self.parts

    @property
    def calls(self) -> Calls:
        """The calls that stay calls."""
        return "none" if "tools" in self.parts else "own" if OTHERS_CALLS in self.parts else "all"

    def messages(self, prompt: Prompt, *, short_ids: bool = False) -> list[JsonObject]:
        """The prompt's messages as this model takes them."""
        if {IMAGES, FAULTY} & self.parts:
            prompt = without_images(prompt, "" if IMAGES in self.parts else _NOT_SHOWN)
        messages = messages_json(prompt, source=self.source, short_ids=short_ids, calls=self.calls)
        if SYSTEM in self.parts:
            messages = [{**each, "role": "user"} if each["role"] == "system" else each for each in messages]
        return alternating(messages) if {ORDER, SYSTEM} & self.parts else messages

    def body(
        self, fields: Mapping[str, Json], level: ThinkingLevel | None, thinking: Mapping[str, Json]
    ) -> dict[str, Json]:
        """The fields, and those that ask for this level, without the parts."""
        parts = self.parts.union(*(needing for part, needing in _NEEDED.items() if part in self.parts))
        body = {**fields, **({} if f"{THINKING}{level}" in parts else thinking)}
        if SCHEMAS in parts and "tools" in body:
            body["tools"] = plain_tools(body["tools"])
        return {name: value for name, value in body.items() if name not in parts}


Request: TypeAlias = tuple[Mapping[str, Json], AbstractAsyncContextManager[ProviderEvents]]
"""The body, and the events of the answer."""
Ask: TypeAlias = Callable[[LeftOut, ThinkingFilter], Request]


async def asked(
    ask: Ask, endpoint: Endpoint, model: str, prompt: Prompt, params: CallParams, own: str
) -> ProviderEvents:
    """Yield the answer to one request, and to another at once if the model refused a part of it."""
    key = endpoint.source(split_model(model)[1])
    this_time = {CHAT} if endpoint.by_responses else set[str]()
    while True:
        left, begun = LeftOut(endpoint.refusals.of(key) | this_time, own), False
        body, answer = ask(left, ThinkingFilter(key in endpoint.thinks_first))
        try:
            async with answer as events:
                async for event in events:
                    begun = True
                    if isinstance(event, ThinkingEnded):
                        endpoint.thinks_first.add(key)
                    elif isinstance(event, ProviderReply) and event.usage and not endpoint.vendor.keys:
                        _check_count(endpoint, model, key, prompt, event.usage.input_tokens)
                    yield event
        except ModelError as error:
            part = None if begun else refused_part(error, prompt, body, params, left)
            if part is None or part in left.parts:
                raise
            log.warning("model.refused", model=model, field=part, message=error.message)
            if part == FAULTY:
                this_time.add(part)
            else:
                endpoint.refusals.note(key, model, part)
        else:
            return


def _check_count(endpoint: Endpoint, model: str, key: str, prompt: Prompt, counted: int) -> None:
    """Note a server that cuts prompts without a word; pictures are left alone, as each counts them differently."""
    part = f"{CONTEXT}{endpoint.windows.get(model, endpoint.window or LOCAL_WINDOW)}{CUTS}"
    is_cut = cuts_prompts(endpoint, key, prompt, estimate_prompt(prompt), counted)
    if is_cut and not has_images(prompt) and part not in endpoint.refusals.of(key):
        log.warning("model.cuts_prompts", model=model, counted=counted)
        endpoint.refusals.note(key, model, part)


def refused_part(
    error: ModelError, prompt: Prompt, body: Mapping[str, Json], params: CallParams, left: LeftOut
) -> str | None:
    """The part that the request may not have; None if the server says something else.

    It is an optional field, the API, the pictures, the fields that the server itself sent, others' calls, which lack
    them, or the order of the messages.
    """
    status = error.status or 0
    if status in (401, 402, 403, 408, 429):
        return None
    error = error.without_quotes(texts_of(prompt))
    if part := next((part for part, words in _SAID if words.search(error.words)), None):
        return part
    if has_images(prompt) and IMAGES not in left.parts and _NO_IMAGES.search(error.words):
        return FAULTY if _FAULTY_IMAGE.search(error.words) else IMAGES
    if OTHERS_CALLS not in left.parts and _WANTED.match(error.words) and lacks_fields(prompt, left.source):
        return OTHERS_CALLS

    def is_named(name: str) -> bool:
        return name in error.fields or bool(re.search(rf"\b{re.escape(name)}\b{_ALSO.get(name, '')}", error.words))

    not_taken = bool(_NOT_TAKEN.search(error.words)) or str(error.code).startswith("unsupported_")
    if not_taken and any(map(is_named, given_back(prompt, left.source))):
        return GIVEN_BACK
    if "tools" in body and not is_named("response_format") and (part := _refused_tools(error, left, not_taken)):
        return part
    is_other = error.kind is ErrorKind.CONTEXT_LENGTH or not (not_taken or error.kind is ErrorKind.BAD_REQUEST)
    if status >= 500 or is_other or OUTPUT_BOUND.search(error.words):
        return None
    if SUMMARY in body.keys() & error.fields:
        return SUMMARY
    if _OF_THINKING & body.keys() and (_OF_THINKING & error.fields or _THINKING_WORDS.search(error.words)):
        return f"{THINKING}{params.thinking}"
    return next((field for field in (_OPTIONAL if not_taken else _TRIFLES) if field in body and is_named(field)), None)


def _refused_tools(error: ModelError, left: LeftOut, not_taken: bool) -> str | None:
    """The schemas of the tools, or, if they aren't taken in plain words either, the tools."""
    of_schemas = _SCHEMA.search(f"{error.code} {error.words}")
    if of_schemas and SCHEMAS not in left.parts:
        return SCHEMAS
    named = {"tools", "tool_choice", "functions"} & error.fields or _TOOL_WORDS.search(error.words)
    return "tools" if (named or error.code == "invalid_function_parameters") and (not_taken or of_schemas) else None
