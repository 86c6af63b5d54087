"""The model: one is connected, and with `--live` it answers."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.config.clock import SystemClock
from gateway.domain.model import Attempt, ModelsExhausted, Prompt, Reply, UserMessage
from gateway.llm.auto import GUIDE
from gateway.llm.call import RetryPolicy
from gateway.llm.catalog import split
from gateway.llm.client import ModelClient, build_client
from gateway.llm.endpoint import endpoint_of

_QUESTION = Prompt((UserMessage("Answer with one word: ready"),))
_RETRY_POLICY = RetryPolicy(delays=(0.0,), max_silence=45.0)


def check_model(patient: Patient) -> Iterator[Finding]:
    """A model is connected; without `--live` no key is tried."""
    yield from asyncio.run(_looked(patient))


async def _looked(patient: Patient) -> list[Finding]:
    client = await build_client(patient.config.models, patient.environ, SystemClock(), _RETRY_POLICY)
    about = client.describe()
    try:
        if about.active == GUIDE:
            text = f"no model is connected: {about.why}"
            return [Finding(Level.WARN, text, "set a provider's key, such as OPENAI_API_KEY")]
        lacking = list(_lacking(patient, about.chain))
        if patient.live:
            return [*lacking, await _asked(client)]
        return lacking or [Finding(Level.OK, f"{', then '.join(about.chain)} ({about.why}); `doctor --live` asks it")]
    finally:
        await client.close()


def _lacking(patient: Patient, chain: Sequence[str]) -> Iterator[Finding]:
    for model in chain:
        endpoint = endpoint_of(split(model)[0], patient.config.models.providers, patient.environ)
        if endpoint.lacks_key:
            fix = f"set {endpoint.vendor.keys[0]}; a key is made at {endpoint.vendor.keys_page}"
            yield Finding(Level.WARN, f"{model} needs a key", fix)


async def _asked(client: ModelClient) -> Finding:
    """One real call, through the whole chain."""
    try:
        await client.warm()
        async with aclosing(client.stream(_QUESTION)) as events:
            (reply,) = [event async for event in events if isinstance(event, Reply)]
    except ModelsExhausted as error:
        fix = "see that key, credit and model's name are right, and that this machine reaches the provider"
        return Finding(Level.FAIL, _tries(error.attempts), fix)
    text = f"{reply.model} answered in {reply.latency_ms / 1000:.1f} s"
    if reply.failed:
        return Finding(Level.WARN, f"{text}, after {_tries(reply.failed)}", "mend the one that failed, or leave it out")
    return Finding(Level.OK, text)


def _tries(attempts: Sequence[Attempt]) -> str:
    """Who failed and why, in one line, the same failure once."""
    return "; ".join(dict.fromkeys(f"{each.model}: {' '.join(each.message.split())}" for each in attempts))
