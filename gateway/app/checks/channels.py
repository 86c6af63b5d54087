"""The messengers: their settings are valid, and with `--live` their platforms accept them."""

import asyncio
from collections.abc import Iterator

from gateway.app.checks.context import CheckContext
from gateway.domain.channels.channel_facts import NoFacts
from gateway.domain.errors import ConfigError, SupaclawError
from gateway.domain.findings import Finding, Level
from gateway.flow.channels.manager import ChannelSpec, channel_specs
from gateway.flow.channels.probing import probe


def check_channels(context: CheckContext) -> Iterator[Finding]:
    """Yield one finding per messenger."""
    if not context.config.channels:
        fix = "connect one with `supaclaw init` or on the page, under Setup"
        yield Finding(Level.WARN, "no messenger is configured, only the web page and the terminal", fix)
    for name, section in context.config.channels.items():
        try:
            spec = channel_specs({name: section}, (), context.environment.data, lambda _: NoFacts()).get(name)
            yield _check_channel(name, spec, live=context.live)
        except ConfigError as error:
            for line in str(error).splitlines():
                yield Finding(Level.FAIL, line, "fix config.json")
        except (SupaclawError, TimeoutError) as error:
            fix = f"fix channels.{name} in config.json; check that this machine can reach the platform"
            yield Finding(Level.FAIL, f"{name}: {str(error) or 'no answer'}", fix)


def _check_channel(name: str, spec: ChannelSpec | None, *, live: bool) -> Finding:
    if spec is None:
        return Finding(Level.OK, f"{name}: switched off")
    who = asyncio.run(_probe(spec, live=live))
    if spec.access.anyone:
        fix = f"list who may talk to it in channels.{name}.allow, unless this is intended"
        return Finding(Level.WARN, f"{name}: {who}; anyone may talk to it", fix)
    return Finding(Level.OK, f"{name}: {who}")


async def _probe(spec: ChannelSpec, *, live: bool) -> str:
    """Build the channel, which refuses invalid settings before it opens anything; with `live`, ask its platform."""
    who = await probe(spec) if live else None
    if who is None:
        spec.make()
        return "the settings are valid; `doctor --live` also asks the platform where possible"
    return f"connected as {who}"
