"""The connections of config.json: the model, the channels, the object store; `--live` tries each."""

import asyncio
import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from gateway.app.checks.context import CheckContext, fail, ok, refused, warn
from gateway.beside import afterwards
from gateway.config.machine import SystemClock
from gateway.domain.channels.channel import NoFacts
from gateway.domain.conversation.model import Attempt, ModelsExhausted
from gateway.domain.errors import ConfigError, OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.health import Finding
from gateway.flow.channels.supervisor import ChannelSpec, channel_specs, probe
from gateway.llm.auto import GUIDE
from gateway.llm.call import RetryPolicy
from gateway.llm.client import ModelClient, build_client
from gateway.llm.local_servers import look_up, more_context
from gateway.llm.vendors import endpoint_of, split_model
from gateway.net.addresses import Rules
from gateway.net.object_store import ObjectStore, StoreAddress

_RETRY_POLICY = RetryPolicy(delays=(0.0,), max_silence=45.0)


def check_model(context: CheckContext) -> Iterator[Finding]:
    """Check that a model is connected; calls it only with `--live`."""
    yield from asyncio.run(_check_chain(context))


async def _check_chain(context: CheckContext) -> list[Finding]:
    client = await build_client(context.config.models, context.environ, SystemClock(), _RETRY_POLICY)
    about = client.describe()
    async with afterwards(client.close):
        if about.active == GUIDE:
            text = f"no model is connected: {about.why}"
            return [warn(text, "paste a key into `supaclaw init` or Setup, or set OPENAI_API_KEY")]
        lacking = list(_lacking_keys(context, about.chain))
        if context.live:
            return [*lacking, await _ask_model(client)]
        return [*lacking, *await _short_contexts(context, about.chain)] or [
            ok(f"{', then '.join(about.chain)} ({about.why}); `doctor --live` calls it")
        ]


def _lacking_keys(context: CheckContext, chain: Sequence[str]) -> Iterator[Finding]:
    for model in chain:
        endpoint = endpoint_of(split_model(model)[0], context.config.models.providers, context.environ)
        if endpoint.lacks_key:
            fix = f"set {endpoint.vendor.keys[0]}; create one at {endpoint.vendor.keys_page}"
            yield warn(f"{model} needs a key", fix)


async def _short_contexts(context: CheckContext, chain: Sequence[str]) -> list[Finding]:
    """A finding for each local model that is loaded with less context than prompts are made for."""
    short = []
    for model in chain:
        endpoint = endpoint_of(split_model(model)[0], context.config.models.providers, context.environ)
        found = await look_up(endpoint, model)
        if found is not None and found.loaded is not None and found.loaded < found.window:
            text = f"{model} is loaded with {found.loaded:,} tokens of context; {found.window:,} are asked for"
            short.append(warn(text, more_context(model, found.window)))
    return short


async def _ask_model(client: ModelClient) -> Finding:
    """Make one real call through the whole chain of models."""
    try:
        first = await client.try_out()
    except ModelsExhausted as error:
        fix = "check the key, the credit and the model's name, and that this machine can reach the provider"
        return fail(_tries(error.attempts), fix)
    text = f"{first.reply.model} {first}"
    if failed := first.reply.failed:
        return warn(f"{text}, after {_tries(failed)}", "fix the one that failed, or remove it")
    return ok(text)


def _tries(attempts: Sequence[Attempt]) -> str:
    """The failed models and their errors, in one line without duplicates."""
    return "; ".join(dict.fromkeys(f"{each.model}: {' '.join(each.message.split())}" for each in attempts))


def check_channels(context: CheckContext) -> Iterator[Finding]:
    """Check the channels; yields one finding for each."""
    if not context.config.channels:
        fix = "connect one with `supaclaw init` or on the page, under Setup"
        yield warn("no messenger is configured, only the web page and the terminal", fix)
    for name, section in context.config.channels.items():
        try:
            spec = channel_specs({name: section}, (), context.environment.data, lambda _: NoFacts()).get(name)
            yield _check_channel(name, spec, live=context.live)
        except ConfigError as error:
            for line in str(error).splitlines():
                yield fail(line, "fix config.json")
        except (SupaclawError, TimeoutError) as error:
            fix = f"fix channels.{name} in config.json; check that this machine can reach the platform"
            yield fail(f"{name}: {str(error) or 'no answer'}", fix)


def _check_channel(name: str, spec: ChannelSpec | None, *, live: bool) -> Finding:
    if spec is None:
        return ok(f"{name}: switched off")
    who = asyncio.run(_probe_channel(spec, live=live))
    if spec.access.anyone:
        fix = f"list who may talk to it in channels.{name}.allow, unless this is intended"
        return warn(f"{name}: {who}; anyone may talk to it", fix)
    return ok(f"{name}: {who}")


async def _probe_channel(spec: ChannelSpec, *, live: bool) -> str:
    """Build the channel, which raises for invalid settings; with `live`, also ask its platform. Returns words."""
    who = await probe(spec) if live else None
    if who is None:
        spec.make()
        return "the settings are valid; `doctor --live` also asks the platform where possible"
    return f"connected as {who}"


_PROBE_BYTES = b"supaclaw doctor"


def check_workspace(context: CheckContext) -> Iterator[Finding]:
    """Check the object store; with `--live`, store, read and delete a few bytes. Yields nothing without a store."""
    if context.config.workspace.url is None:
        return
    try:
        address = StoreAddress.of(context.config.workspace)
    except OwnerMustAct as error:
        yield refused(error)
        return
    if not context.live:
        yield ok(f"synchronised with {address.place}; `doctor --live` tries it")
        return
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "probe").write_bytes(_PROBE_BYTES)
            store = ObjectStore(address, lambda: Rules.of(context.config.net.private_allow))
            asyncio.run(_try_store(store, Path(folder, "probe")))
        yield ok(f"synchronised with {address.place}, which works")
    except TryAgainLater as error:
        yield fail(str(error), "`supaclaw config` changes the keys of workspace; docs/scale.md says how")


async def _try_store(store: ObjectStore, probe: Path) -> None:
    name = hashlib.sha256(_PROBE_BYTES).hexdigest()
    with closing(store):
        await store.put(name, probe)
        await store.fetch(name, len(_PROBE_BYTES), probe)
        await store.delete(name)
