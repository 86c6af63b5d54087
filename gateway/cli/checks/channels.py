"""The messengers: their settings can work, and with `--live` their platforms know us."""

import asyncio
from collections.abc import Iterator

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.domain.channel import ProbedChannel
from gateway.domain.errors import ConfigError, OwnerMustAct, SupaclawError, TryAgainLater
from gateway.flow.doors import Opening, openings

_WITHIN_SECONDS = 20.0


def check_channels(patient: Patient) -> Iterator[Finding]:
    """One finding a messenger."""
    if not patient.config.channels:
        fix = "add one under `channels` in config.json, such as telegram"
        yield Finding(Level.WARN, "channels", "no messenger, only the page and the terminal", fix)
    for name, section in patient.config.channels.items():
        try:
            opened = openings({name: section}, ())
        except ConfigError as error:
            for line in str(error).splitlines():
                yield Finding(Level.FAIL, "channels", line, "mend config.json")
        else:
            yield _examined(name, opened.get(name), live=patient.live)


def _examined(name: str, opening: Opening | None, *, live: bool) -> Finding:
    if opening is None:
        return Finding(Level.WARN, "channels", f"{name}: this version cannot open it yet", "leave it, or remove it")
    try:
        who = asyncio.run(_probed(opening)) if live else _made(opening)
    except ConfigError as error:
        return Finding(Level.FAIL, "channels", str(error), "mend config.json")
    except OwnerMustAct as error:
        return Finding(Level.FAIL, "channels", f"{name}: {error}", f"mend channels.{name} in config.json")
    except SupaclawError as error:
        fix = f"see that this machine reaches the platform; if it does, look at channels.{name} in config.json"
        return Finding(Level.FAIL, "channels", f"{name}: {error}", fix)
    if opening.access.anyone:
        fix = f"list who may talk in channels.{name}.allow, unless that is what you want"
        return Finding(Level.WARN, "channels", f"{name}: {who}; anyone may talk to it", fix)
    return Finding(Level.OK, "channels", f"{name}: {who}")


def _made(opening: Opening) -> str:
    """A channel refuses settings that can never work when it is made, before it opens anything."""
    opening.make()
    return "the settings can work; `doctor --live` asks the platform"


async def _probed(opening: Opening) -> str:
    channel = opening.make()
    if not isinstance(channel, ProbedChannel):
        return "the settings can work; its platform cannot be asked without opening it"
    try:
        async with asyncio.timeout(_WITHIN_SECONDS):
            return f"the platform knows us as {await channel.probe()}"
    except TimeoutError as error:
        raise TryAgainLater(f"no answer within {_WITHIN_SECONDS:.0f} s") from error
    finally:
        await channel.close()
