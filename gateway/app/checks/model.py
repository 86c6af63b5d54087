"""A model is connected, and with `--live` it answers."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from gateway.app.checks.context import CheckContext
from gateway.config.machine import SystemClock
from gateway.domain.conversation.model import Attempt, ModelsExhausted, Prompt, Reply, UserMessage
from gateway.domain.findings import Finding, Level
from gateway.llm.auto import GUIDE
from gateway.llm.call import RetryPolicy
from gateway.llm.client import ModelClient, build_client
from gateway.llm.vendors import endpoint_of, split_model

_QUESTION = Prompt((UserMessage("Answer with one word: ready"),))
_RETRY_POLICY = RetryPolicy(delays=(0.0,), max_silence=45.0)


def check_model(context: CheckContext) -> Iterator[Finding]:
    """A model is connected; without `--live` no key is tested."""
    yield from asyncio.run(_check(context))


async def _check(context: CheckContext) -> list[Finding]:
    client = await build_client(context.config.models, context.environ, SystemClock(), _RETRY_POLICY)
    about = client.describe()
    try:
        if about.active == GUIDE:
            text = f"no model is connected: {about.why}"
            return [Finding(Level.WARN, text, "paste a key into `supaclaw init` or Setup, or set OPENAI_API_KEY")]
        lacking = list(_lacking(context, about.chain))
        if context.live:
            return [*lacking, await _ask(client)]
        return lacking or [Finding(Level.OK, f"{', then '.join(about.chain)} ({about.why}); `doctor --live` calls it")]
    finally:
        await client.close()


def _lacking(context: CheckContext, chain: Sequence[str]) -> Iterator[Finding]:
    for model in chain:
        endpoint = endpoint_of(split_model(model)[0], context.config.models.providers, context.environ)
        if endpoint.lacks_key:
            fix = f"set {endpoint.vendor.keys[0]}; create one at {endpoint.vendor.keys_page}"
            yield Finding(Level.WARN, f"{model} needs a key", fix)


async def _ask(client: ModelClient) -> Finding:
    """Make one real call, through the whole chain."""
    try:
        await client.warm()
        async with aclosing(client.stream(_QUESTION)) as events:
            (reply,) = [event async for event in events if isinstance(event, Reply)]
    except ModelsExhausted as error:
        fix = "check the key, the credit and the model's name, and that this machine can reach the provider"
        return Finding(Level.FAIL, _tries(error.attempts), fix)
    text = f"{reply.model} answered in {reply.latency_ms / 1000:.1f} s"
    if reply.failed:
        return Finding(Level.WARN, f"{text}, after {_tries(reply.failed)}", "fix the one that failed, or remove it")
    return Finding(Level.OK, text)


def _tries(attempts: Sequence[Attempt]) -> str:
    """The failed models and their errors, in one line without duplicates."""
    return "; ".join(dict.fromkeys(f"{each.model}: {' '.join(each.message.split())}" for each in attempts))
