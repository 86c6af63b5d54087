"""One call of a model: asks the models of the chain in turn until one answers, and records the attempts that failed.

One attempt ends with a usable answer or a `ModelError`; models without vision get the text only."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import groupby

import structlog

from gateway.domain.conversation.model import (
    Attempt,
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
from gateway.domain.settings import CallParams
from gateway.domain.text.tokens import estimate
from gateway.domain.time import Clock
from gateway.llm.continuing import AnswerEvent, whole_answer
from gateway.llm.error_words import output_room
from gateway.llm.errors import Cooldowns, ErrorKind, ModelError, scrub
from gateway.llm.prices import Prices, estimate_prompt
from gateway.llm.protocol.wire import texts_of, without_images
from gateway.llm.protocol.written_calls import unreadable_call, written_calls
from gateway.llm.provider import (
    KeepAlive,
    Provider,
    ProviderEvent,
    ProviderEvents,
    ProviderReply,
    Providers,
    ThinkingEnded,
)
from gateway.llm.vendors import split_model, vendor

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """In seconds: pauses between attempts, the longest silence, the longest `retry_after` to honour."""

    delays: tuple[float, ...] = (5.0, 10.0, 10.0)
    max_silence: float = 120.0
    max_wait: float = 300.0


USUAL_POLICY = RetryPolicy()
WRITTEN = (
    "I tried to use `{}`, but wrote the call as text, which is not run. Ask again in other words, or choose a model "
    "that can call tools: `/model`."
)


_LEAST_TOLD_MS = 50
"""Milliseconds of an answer from which its speed can be told."""


@dataclass(frozen=True, slots=True)
class CallServices:
    """Shared by all calls of one configuration."""

    providers: Providers
    params: CallParams
    prices: Prices
    clock: Clock
    cooldowns: Cooldowns
    retry_policy: RetryPolicy
    calls_properly: set[str] = field(default_factory=set)
    """Models that have made a tool call as their provider defines it."""
    longest: dict[str, int] = field(default_factory=dict)
    """The longest answers, in tokens, of models that refused longer ones."""
    speeds: dict[str, float] = field(default_factory=dict)
    """Tokens per second of each model's first answer whose speed can be told, after its thinking."""


@dataclass(slots=True)
class ModelCall:
    """One prompt, and the attempts to get an answer to it."""

    prompt: Prompt
    services: CallServices
    failed: list[Attempt] = field(default_factory=list)

    async def run(self, models: Sequence[str]) -> AsyncGenerator[ModelEvent, None]:
        """Ask each model; then wait and ask the busy ones again, once per configured delay."""
        errors: dict[str, ModelError] = {}
        for delay in (*self.services.retry_policy.delays, None):
            for model in models:
                try:
                    async with aclosing(self._retried(model)) as events:
                        async for event in events:
                            yield event
                except ModelError as error:
                    self.services.cooldowns.note(model, error)
                    errors[model] = error
                else:
                    return
            most = self.services.retry_policy.max_wait
            models = [each for each in models if errors[each].kind.busy and (errors[each].retry_after or 0.0) <= most]
            if not models or delay is None:
                break
            pause = max(delay, min(errors[model].retry_after or 0.0 for model in models))
            yield Waiting(self.failed[-1], pause)
            await self.services.clock.sleep(pause)
        last = errors[self.failed[-1].model]
        overflow = any(error.kind is ErrorKind.CONTEXT_LENGTH for error in errors.values())
        raise ModelsExhausted(explain_failures(self.failed, last), tuple(self.failed), overflow=overflow) from last

    async def _retried(self, model: str) -> AsyncGenerator[ModelEvent, None]:
        """One model, retried after each delay while its failures look transient; an endless answer only once."""
        for retries, delay in enumerate((*self.services.retry_policy.delays, None)):
            try:
                async with aclosing(self._attempt(model)) as events:
                    async for event in events:
                        yield event
            except ModelError as error:
                if delay is None or (error.kind is ErrorKind.ENDLESS and retries > 0) or not error.kind.transient:
                    raise
                yield Waiting(self.failed[-1], delay)
                await self.services.clock.sleep(delay)
            else:
                return

    async def _attempt(self, model: str) -> AsyncGenerator[ModelEvent, None]:
        services = self.services
        price = services.prices.of(model)
        params = _capped(services.params, services.longest.get(model, price.output))
        prompt = without_images(self.prompt) if price.vision is False else self.prompt
        while True:
            streamed, started = False, services.clock.monotonic()
            answering: float | None = None
            try:
                async with aclosing(self._answer(model, prompt, params)) as events:
                    async for event in events:
                        match event:
                            case TextDelta() | ThinkingDelta():
                                streamed = True
                                if answering is None and isinstance(event, TextDelta):
                                    answering = services.clock.monotonic()
                                yield event
                            case ThinkingEnded():
                                yield Restarted(Attempt(model, "thinking", "what it wrote so far was thinking"))
                            case ProviderReply():
                                reply = self._reply(model, event, started, answering)
                                if reply.text != event.text:
                                    yield Restarted(Attempt(model, "written_call", "it wrote a call as text"))
                                yield reply
            except ModelError as quoting:
                error = quoting.without_quotes(texts_of(self.prompt))
                shorter = None if streamed else self._adapted(model, params, error)
                if shorter is None:
                    attempt = self._note(model, error)
                    if streamed:
                        yield Restarted(attempt)
                    raise error from quoting
                params = shorter
            else:
                return

    def _answer(self, model: str, prompt: Prompt, params: CallParams) -> AsyncGenerator[AnswerEvent, None]:
        provider, silence = self.services.providers.of(model), self.services.retry_policy.max_silence

        def ask(prompt: Prompt) -> AsyncGenerator[AnswerEvent, None]:
            return try_once(provider, model, prompt, params, silence)

        return whole_answer(ask, prompt, params.max_output_tokens)

    def _adapted(self, model: str, params: CallParams, error: ModelError) -> CallParams | None:
        """The parameters with which the model may answer at once; None if nothing can be adapted to the error."""
        too_long, asked = error.kind is ErrorKind.CONTEXT_LENGTH, params.max_output_tokens
        room = output_room(error.words, asked, too_long=too_long)
        if room is None:
            return None
        if not too_long:
            self.services.longest[model] = room
        return _capped(params, room)

    def _reply(self, model: str, reply: ProviderReply, started: float, answering: float | None) -> Reply:
        """`answering`: when the answer began to arrive, after the thinking; both by the monotonic clock."""
        self.services.cooldowns.clear(model)
        text, calls = self._calls(model, reply)
        usage, failed = self._usage(model, reply), tuple(self.failed)
        now = self.services.clock.monotonic()
        took, thinking = (round((until - started) * 1000) for until in (now, now if answering is None else answering))
        thought = Thought(reply.thought, thinking) if reply.thought or usage.thinking_tokens else None
        if took - thinking > _LEAST_TOLD_MS:
            written = usage.output_tokens - usage.thinking_tokens
            self.services.speeds.setdefault(model, 1000 * written / (took - thinking))
        return Reply(text, calls, usage, model, took, failed, reply.fields, thought)

    def _calls(self, model: str, reply: ProviderReply) -> tuple[str, tuple[ToolCall, ...]]:
        """The text and the calls; a call as text is one only of a model that has never made a proper one."""
        if reply.calls:
            self.services.calls_properly.add(model)
        written = [] if reply.calls else written_calls(reply.text, self.prompt.tools)
        if not written:
            cut = reply.calls or reply.finish == "length"
            tried = None if cut else unreadable_call(reply.text, self.prompt.tools)
            words, tool = tried or (reply.text, "")
            return (f"{words}\n\n{WRITTEN.format(tool)}".strip(), ()) if tried else (words, reply.calls)
        may_run = model not in self.services.calls_properly and self.prompt.answer_format is None
        calls = tuple(call for each in written if may_run and (call := each.made(self.prompt)))
        return ("", calls) if len(calls) == len(written) else (WRITTEN.format(written[0].name), ())

    def _usage(self, model: str, reply: ProviderReply) -> Usage:
        usage = reply.usage
        if usage is None or not usage.input_tokens:
            written = estimate(reply.text) + sum(estimate(call.arguments) for call in reply.calls)
            usage = Usage(estimate_prompt(self.prompt), written + estimate(reply.thought))
        thinking = usage.thinking_tokens or min(estimate(reply.thought), usage.output_tokens)
        price = self.services.prices.cost
        cost, part = usage.cost_usd or price(model, usage), price(model, Usage(output_tokens=thinking))
        return replace(usage, cost_usd=cost, thinking_tokens=thinking, thinking_usd=min(part, cost))

    def _note(self, model: str, error: ModelError) -> Attempt:
        text = f"HTTP {error.status}: {error.message}" if error.status else error.message
        attempt = Attempt(model, error.kind.value, scrub(text, self.services.providers.secrets(model)))
        self.failed.append(attempt)
        log.warning("model.try_failed", model=model, error=attempt.error, message=attempt.message)
        return attempt


def _capped(params: CallParams, limit: int | None) -> CallParams:
    """The parameters, with the output limit lowered to the model's own."""
    if limit is None or limit >= params.max_output_tokens:
        return params
    return params.model_copy(update={"max_output_tokens": limit})


_KEEP_ALIVE_FACTOR = 2.5
"""How much longer than silent a connection may be alive without an answer."""


async def try_once(
    provider: Provider, model: str, prompt: Prompt, params: CallParams, max_silence: float
) -> AsyncGenerator[AnswerEvent, None]:
    """Yield deltas, then the reply.

    Raises `ModelError` if nothing at all arrives for `max_silence` seconds, or no part of an answer for
    `_KEEP_ALIVE_FACTOR` times as long.
    """
    await provider.warm()
    now = asyncio.get_running_loop().time
    async with aclosing(provider.stream(model, prompt, params)) as events:
        last_progress = now()
        while (event := await _next_event(events, max_silence, last_progress)) is not None:
            if not isinstance(event, KeepAlive):
                last_progress = now()
            if isinstance(event, ProviderReply):
                yield _require_content(event, params)
            elif isinstance(event, ThinkingEnded | ThinkingDelta) or (isinstance(event, TextDelta) and event.text):
                yield event


async def _next_event(events: ProviderEvents, max_silence: float, last_progress: float) -> ProviderEvent | None:
    """The next event; the answer has not grown since `last_progress`."""
    longest_idle = _KEEP_ALIVE_FACTOR * max_silence
    silent, idle = asyncio.get_running_loop().time() + max_silence, last_progress + longest_idle
    try:
        async with asyncio.timeout_at(min(silent, idle)):
            return await anext(events, None)
    except TimeoutError as error:
        what, seconds = ("nothing", max_silence) if silent < idle else ("nothing but keep-alives", longest_idle)
        raise ModelError(ErrorKind.SILENCE, f"{what} arrived for {seconds:g} s") from error


def _require_content(reply: ProviderReply, params: CallParams) -> ProviderReply:
    if reply.text.strip() or reply.calls:
        return reply
    if reply.finish == "length":
        limit = f"its whole limit of {params.max_output_tokens} tokens (models.params.max_output_tokens)"
        raise ModelError(ErrorKind.BAD_REQUEST, f"the model used {limit} without an answer")
    if reply.finish == "content_filter":
        raise ModelError(ErrorKind.CONTENT, "the provider's content filter held the answer back")
    raise ModelError(ErrorKind.SERVER, f"empty answer (finish reason {reply.finish})")


def explain_failures(attempts: Sequence[Attempt], last: ModelError) -> str:
    """List the models in order with their errors, then what to do about the last one."""
    groups = [(attempt, len(list(same))) for attempt, same in groupby(attempts)]
    lines = [f"{place}. {_attempt_line(*group)}" for place, group in enumerate(groups, start=1)]
    return "\n".join(["**No model could answer.**", *lines, "", _advice(attempts[-1].model, last)])


def _attempt_line(attempt: Attempt, tries: int) -> str:
    times = f" ({tries} times)" if tries > 1 else ""
    return f"`{attempt.model}`: {attempt.error}{times}: {attempt.message}"


def _advice(model: str, last: ModelError) -> str:
    entry = vendor(split_model(model)[0])
    name = entry.title
    match last.kind:
        case ErrorKind.RATE_LIMIT | ErrorKind.OVERLOADED:
            when = f"in about {_span(last.retry_after)}" if last.retry_after else "in a minute"
            return f"Wait and send your message again {when}, or add another model to `models.fallbacks`."
        case ErrorKind.AUTH:
            page = f" at {entry.keys_page}" if entry.keys_page else ""
            place = f"`{entry.keys[0]}` or " if entry.keys else ""
            return f"Check the {name} key{page} and set it in {place}`models.providers.{entry.prefix}.api_key`."
        case ErrorKind.NO_CREDIT:
            return f"Add credit to your {name} account, or add another model to `models.fallbacks`."
        case ErrorKind.UNKNOWN_MODEL:
            return "Check the model's name: `/model` shows what is configured, `models.primary` changes it."
        case ErrorKind.CONTEXT_LENGTH:
            return "This conversation is too long for the model: start over with `/new`, or choose a larger model."
        case ErrorKind.CONTENT:
            return f"{name} refused what this conversation is about: put it in other words, or choose another model."
        case ErrorKind.BAD_REQUEST:
            return "The request was refused; trying again will not help. `/new` starts over, `/model` shows the model."
        case ErrorKind.NETWORK if entry.base_url and not entry.keys:
            return f"Check that {name} is running, then send your message again."
        case ErrorKind.ENDLESS:
            return "Send your message again in other words, or choose another model: `/model` shows what is configured."
        case ErrorKind.SERVER | ErrorKind.NETWORK | ErrorKind.SILENCE:
            return "Wait a little and send your message again; `/model` shows the models and `/status` the connections."


def _span(seconds: float) -> str:
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:.0f} hours"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
