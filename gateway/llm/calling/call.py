"""One call: asks the models of the chain in turn until one answers, and records the attempts that failed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog
from tenacity import AsyncRetrying, RetryCallState, wait_chain, wait_fixed

from gateway.domain.clock import Clock
from gateway.domain.conversation.model import (
    Attempt,
    ModelEvent,
    ModelsExhausted,
    Prompt,
    Reply,
    Restarted,
    TextDelta,
    Usage,
    Waiting,
)
from gateway.domain.settings import Params
from gateway.domain.text.tokens import estimate
from gateway.llm.calling.cooldown import Cooldowns
from gateway.llm.calling.exhausted import explain
from gateway.llm.calling.one_try import one_try
from gateway.llm.calling.registry import Providers
from gateway.llm.calling.scrub import scrub
from gateway.llm.calling.vision import has_images, refused_images, without_images
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.prices import Prices
from gateway.llm.provider import ProviderReply
from gateway.llm.tokens import estimate_prompt

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """In seconds: pauses between attempts, the longest silence, the longest `retry_after` to honour."""

    delays: tuple[float, ...] = (5.0, 10.0, 10.0)
    max_silence: float = 120.0
    max_wait: float = 300.0


@dataclass(frozen=True, slots=True)
class CallServices:
    """What all calls of one configuration share."""

    providers: Providers
    params: Params
    prices: Prices
    clock: Clock
    cooldowns: Cooldowns
    retry_policy: RetryPolicy
    no_vision: set[str] = field(default_factory=set)
    """Models that refused images although the price table does not say so."""

    def prompt_for(self, model: str, prompt: Prompt) -> Prompt:
        """The prompt, without images if the model cannot take them."""
        if has_images(prompt) and (model in self.no_vision or self.prices.of(model).vision is False):
            return without_images(prompt)
        return prompt


@dataclass(slots=True)
class Call:
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
                    async with aclosing(self._tries(model)) as events:
                        async for event in events:
                            yield event
                except ModelError as error:
                    self.services.cooldowns.note(model, error)
                    errors[model] = error
                else:
                    return
            models = [model for model in models if self._worth_waiting_for(errors[model])]
            if not models or delay is None:
                break
            pause = max(delay, min(errors[model].retry_after or 0.0 for model in models))
            yield Waiting(self.failed[-1], pause)
            await self.services.clock.sleep(pause)
        last = errors[self.failed[-1].model]
        overflow = any(error.kind is ErrorKind.CONTEXT_LENGTH for error in errors.values())
        raise ModelsExhausted(explain(self.failed, last), tuple(self.failed), overflow=overflow) from last

    def _worth_waiting_for(self, error: ModelError) -> bool:
        return error.kind.busy and (error.retry_after or 0.0) <= self.services.retry_policy.max_wait

    async def _tries(self, model: str) -> AsyncGenerator[ModelEvent, None]:
        """One model, retried after each delay while its failures look transient."""
        retrying = AsyncRetrying(
            retry=_transient,
            stop=self._enough,
            wait=wait_chain(*map(wait_fixed, self.services.retry_policy.delays)),
            sleep=self.services.clock.sleep,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with aclosing(self._try(model)) as events:
                    async for event in events:
                        yield event
            if _transient(attempt.retry_state) and not self._enough(attempt.retry_state):
                yield Waiting(self.failed[-1], retrying.wait(attempt.retry_state))

    def _enough(self, state: RetryCallState) -> bool:
        """After each delay; an answer that did not end costs much and is tried once more only."""
        error = state.outcome.exception() if state.outcome else None
        is_endless = isinstance(error, ModelError) and error.kind is ErrorKind.ENDLESS
        tries = len(self.services.retry_policy.delays) + 1
        return state.attempt_number >= (min(2, tries) if is_endless else tries)

    async def _try(self, model: str) -> AsyncGenerator[ModelEvent, None]:
        services, started, streamed = self.services, self.services.clock.monotonic(), False
        params = _capped(services.params, services.prices.of(model).output)
        prompt = services.prompt_for(model, self.prompt)
        try:
            provider = services.providers.of(model)
            async with aclosing(one_try(provider, model, prompt, params, services.retry_policy.max_silence)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        streamed = True
                        yield event
                    else:
                        yield self._reply(model, event, services.clock.monotonic() - started)
        except ModelError as error:
            if has_images(prompt) and refused_images(error) and not streamed:
                services.no_vision.add(model)
                async with aclosing(self._try(model)) as events:
                    async for again in events:
                        yield again
                return
            attempt = self._note(model, error)
            if streamed:
                yield Restarted(attempt)
            raise

    def _reply(self, model: str, reply: ProviderReply, seconds: float) -> Reply:
        self.services.cooldowns.clear(model)
        usage = self._usage(model, reply)
        return Reply(reply.text, reply.calls, usage, model, round(seconds * 1000), tuple(self.failed))

    def _usage(self, model: str, reply: ProviderReply) -> Usage:
        usage = reply.usage
        if usage is None or not usage.input_tokens:
            written = estimate(reply.text) + sum(estimate(call.arguments) for call in reply.calls)
            usage = Usage(estimate_prompt(self.prompt), written)
        return usage if usage.cost_usd else replace(usage, cost_usd=self.services.prices.cost(model, usage))

    def _note(self, model: str, error: ModelError) -> Attempt:
        text = f"HTTP {error.status}: {error.message}" if error.status else error.message
        attempt = Attempt(model, error.kind.value, scrub(text, self.services.providers.secrets(model)))
        self.failed.append(attempt)
        log.warning("model.try_failed", model=model, error=attempt.error, message=attempt.message)
        return attempt


def _transient(state: RetryCallState) -> bool:
    """Whether the same model is worth asking again."""
    error = state.outcome.exception() if state.outcome else None
    return isinstance(error, ModelError) and error.kind.transient


def _capped(params: Params, limit: int | None) -> Params:
    """The parameters, with the output limit lowered to the model's own."""
    if limit is None or limit >= params.max_output_tokens:
        return params
    return params.model_copy(update={"max_output_tokens": limit})
