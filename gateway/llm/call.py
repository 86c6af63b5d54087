"""One call: walks the chain of models until one answers, and keeps the record of the tries that failed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import structlog
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_chain, wait_fixed

from gateway.domain.clock import Clock
from gateway.domain.model import Attempt, ModelEvent, ModelsExhausted, Prompt, Reply, Restarted, TextDelta, Usage
from gateway.domain.settings import Params
from gateway.domain.tokens import estimate
from gateway.llm.cooldown import Cooldowns
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.exhausted import explain
from gateway.llm.one_try import one_try
from gateway.llm.prices import Prices
from gateway.llm.provider import ProviderReply
from gateway.llm.registry import Providers
from gateway.llm.scrub import scrub
from gateway.llm.sight import has_pictures, refused_pictures, without_pictures
from gateway.llm.tokens import estimate_prompt

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: pauses before further tries, the longest silence, the longest wait a provider may ask for."""

    delays: tuple[float, ...] = (5.0, 10.0, 10.0)
    silence: float = 120.0
    longest_wait: float = 300.0


@dataclass(frozen=True, slots=True)
class Means:
    """What every call of one configuration works with."""

    providers: Providers
    params: Params
    prices: Prices
    clock: Clock
    cooldowns: Cooldowns
    patience: Patience
    blind: set[str] = field(default_factory=set)
    """Models that refused pictures, although nobody had said that they would."""

    def seen_by(self, model: str, prompt: Prompt) -> Prompt:
        """The prompt as the model can take it."""
        if has_pictures(prompt) and (model in self.blind or self.prices.of(model).vision is False):
            return without_pictures(prompt)
        return prompt


@dataclass(slots=True)
class Call:
    """One prompt on its way to an answer."""

    prompt: Prompt
    means: Means
    failed: list[Attempt] = field(default_factory=list)

    async def walk(self, models: Sequence[str]) -> AsyncGenerator[ModelEvent, None]:
        """Ask each model; then wait for those that are only busy and ask them again, as often as there are delays."""
        errors: dict[str, ModelError] = {}
        for delay in (*self.means.patience.delays, None):
            for model in models:
                try:
                    async with aclosing(self._tries(model)) as events:
                        async for event in events:
                            yield event
                except ModelError as error:
                    self.means.cooldowns.note(model, error)
                    errors[model] = error
                else:
                    return
            models = [model for model in models if self._worth_waiting_for(errors[model])]
            if not models or delay is None:
                break
            await self.means.clock.sleep(max(delay, min(errors[model].retry_after or 0.0 for model in models)))
        last = errors[self.failed[-1].model]
        overflow = any(error.kind is ErrorKind.CONTEXT_LENGTH for error in errors.values())
        raise ModelsExhausted(explain(self.failed, last), tuple(self.failed), overflow=overflow) from last

    def _worth_waiting_for(self, error: ModelError) -> bool:
        return error.kind.busy and (error.retry_after or 0.0) <= self.means.patience.longest_wait

    async def _tries(self, model: str) -> AsyncGenerator[ModelEvent, None]:
        """One model, again after each delay while its failures look passing."""
        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.kind.passes_quickly),
            stop=stop_after_attempt(len(self.means.patience.delays) + 1),
            wait=wait_chain(*map(wait_fixed, self.means.patience.delays)),
            sleep=self.means.clock.sleep,
            reraise=True,
        )
        async for attempt in retrying:
            with attempt:
                async with aclosing(self._try(model)) as events:
                    async for event in events:
                        yield event

    async def _try(self, model: str) -> AsyncGenerator[ModelEvent, None]:
        means, started, streamed = self.means, self.means.clock.monotonic(), False
        params, prompt = _within(means.params, means.prices.of(model).output), means.seen_by(model, self.prompt)
        try:
            provider = means.providers.of(model)
            async with aclosing(one_try(provider, model, prompt, params, means.patience.silence)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        streamed = True
                        yield event
                    else:
                        yield self._reply(model, event, means.clock.monotonic() - started)
        except ModelError as error:
            if has_pictures(prompt) and refused_pictures(error) and not streamed:
                means.blind.add(model)
                async with aclosing(self._try(model)) as events:
                    async for again in events:
                        yield again
                return
            attempt = self._note(model, error)
            if streamed:
                yield Restarted(attempt)
            raise

    def _reply(self, model: str, reply: ProviderReply, seconds: float) -> Reply:
        self.means.cooldowns.clear(model)
        usage = self._usage(model, reply)
        return Reply(reply.text, reply.calls, usage, model, round(seconds * 1000), tuple(self.failed))

    def _usage(self, model: str, reply: ProviderReply) -> Usage:
        usage = reply.usage
        if usage is None or not usage.input_tokens:
            written = estimate(reply.text) + sum(estimate(call.arguments) for call in reply.calls)
            usage = Usage(estimate_prompt(self.prompt), written)
        return usage if usage.cost_usd else replace(usage, cost_usd=self.means.prices.cost(model, usage))

    def _note(self, model: str, error: ModelError) -> Attempt:
        text = f"HTTP {error.status}: {error.message}" if error.status else error.message
        attempt = Attempt(model, error.kind.value, scrub(text, self.means.providers.secrets(model)))
        self.failed.append(attempt)
        log.warning("model.try_failed", model=model, error=attempt.error, message=attempt.message)
        return attempt


def _within(params: Params, limit: int | None) -> Params:
    """The parameters with no more output than the model can give."""
    if limit is None or limit >= params.max_output_tokens:
        return params
    return params.model_copy(update={"max_output_tokens": limit})
