"""The model: one is connected, and with `--live` it answers."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.config.clock import SystemClock
from gateway.domain.model import Attempt, ModelsExhausted, Prompt, Reply, UserMessage
from gateway.llm.auto import GUIDE
from gateway.llm.call import Patience
from gateway.llm.catalog import split
from gateway.llm.client import ModelClient, build_client
from gateway.llm.endpoint import endpoint_of
from gateway.llm.errors import ErrorKind

_QUESTION = Prompt((UserMessage("Answer with one word: ready"),))
_PATIENCE = Patience(delays=(0.0,), silence=45.0)
_WITHIN_SECONDS = 120.0
_MENDED_BY_THE_OWNER = frozenset({ErrorKind.AUTH, ErrorKind.NO_CREDIT, ErrorKind.UNKNOWN_MODEL})


def check_model(patient: Patient) -> Iterator[Finding]:
    """A model is connected; without `--live` no key is tried."""
    yield from asyncio.run(_looked(patient))


async def _looked(patient: Patient) -> list[Finding]:
    client = await build_client(patient.config.models, patient.environ, SystemClock(), _PATIENCE)
    try:
        lacking = list(_lacking(patient, client))
        if client.describe().active == GUIDE:
            fix = "set a provider's key, such as OPENAI_API_KEY"
            return [Finding(Level.WARN, "model", f"no model is connected: {client.describe().why}", fix)]
        return [*lacking, await _asked(client)] if patient.live else lacking or [_chain(client)]
    finally:
        await client.close()


def _chain(client: ModelClient) -> Finding:
    about = client.describe()
    followed = f", then {', '.join(about.chain[1:])}" if len(about.chain) > 1 else ""
    return Finding(Level.OK, "model", f"{about.active} ({about.why}){followed}; `doctor --live` asks it")


def _lacking(patient: Patient, client: ModelClient) -> Iterator[Finding]:
    """The models of the chain that have no key."""
    for model in client.describe().chain:
        endpoint = endpoint_of(split(model)[0], patient.config.models.providers, patient.environ)
        if endpoint.lacks_key:
            fix = f"set {endpoint.vendor.keys[0]}; a key is made at {endpoint.vendor.keys_page}"
            yield Finding(Level.WARN, "model", f"{model} needs a key", fix)


async def _asked(client: ModelClient) -> Finding:
    """One real call, through the whole chain."""
    try:
        await client.warm()
        async with asyncio.timeout(_WITHIN_SECONDS), aclosing(client.stream(_QUESTION)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    return _answered(event)
    except ModelsExhausted as error:
        return Finding(Level.FAIL, "model", _tries(error.attempts), _advice(error))
    except TimeoutError:
        return Finding(
            Level.FAIL, "model", f"no answer within {_WITHIN_SECONDS:.0f} s", "see the provider's status page"
        )
    return Finding(Level.FAIL, "model", "the model ended without an answer", "try another one in models.primary")


def _answered(reply: Reply) -> Finding:
    text = f"{reply.model} answered in {reply.latency_ms / 1000:.1f} s"
    if not reply.failed:
        return Finding(Level.OK, "model", text)
    fix = "mend the one that failed, or leave it out"
    return Finding(Level.WARN, "model", f"{text}, after {_tries(reply.failed)}", fix)


def _tries(attempts: Sequence[Attempt]) -> str:
    """Who failed and why, in one line, the same failure once."""
    return "; ".join(dict.fromkeys(f"{each.model}: {' '.join(each.message.split())}" for each in attempts))


def _advice(error: ModelsExhausted) -> str:
    """What the chat would be told, where that is something to mend; waiting helps nobody who runs the doctor."""
    if error.attempts[-1].error in _MENDED_BY_THE_OWNER:
        return str(error).splitlines()[-1]
    return "see that this machine reaches the provider; a model in models.fallbacks would answer meanwhile"
