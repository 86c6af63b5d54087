"""The messengers: their settings can work, and with `--live` their platforms know us."""

import asyncio
from collections.abc import Iterator

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.domain.channel import ProbedChannel
from gateway.domain.errors import ConfigError, SupaclawError
from gateway.flow.channels.manager import ChannelSpec, channel_specs

_WITHIN_SECONDS = 20.0


def check_channels(patient: Patient) -> Iterator[Finding]:
    """One finding a messenger."""
    if not patient.config.channels:
        fix = "add one under `channels` in config.json, such as telegram"
        yield Finding(Level.WARN, "no messenger, only the page and the terminal", fix)
    for name, section in patient.config.channels.items():
        try:
            yield _examined(
                name, channel_specs({name: section}, (), patient.environment.data).get(name), live=patient.live
            )
        except ConfigError as error:
            for line in str(error).splitlines():
                yield Finding(Level.FAIL, line, "mend config.json")
        except (SupaclawError, TimeoutError) as error:
            fix = f"mend channels.{name} in config.json; see that this machine reaches the platform"
            yield Finding(Level.FAIL, f"{name}: {str(error) or 'no answer'}", fix)


def _examined(name: str, spec: ChannelSpec | None, *, live: bool) -> Finding:
    if spec is None:
        return Finding(Level.OK, f"{name}: switched off")
    who = asyncio.run(_probed(spec, live=live))
    if spec.access.anyone:
        fix = f"list who may talk in channels.{name}.allow, unless that is what you want"
        return Finding(Level.WARN, f"{name}: {who}; anyone may talk to it", fix)
    return Finding(Level.OK, f"{name}: {who}")


async def _probed(spec: ChannelSpec, *, live: bool) -> str:
    """A channel refuses settings that can never work when it is made, before it opens anything."""
    channel = spec.make()
    if not (live and isinstance(channel, ProbedChannel)):
        return "the settings can work; `doctor --live` asks platforms that can be asked"
    try:
        async with asyncio.timeout(_WITHIN_SECONDS):
            return f"the platform knows us as {await channel.probe()}"
    finally:
        await channel.close()
