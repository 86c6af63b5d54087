"""Connecting a messenger by the tokens of its bot or app."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.config.channels import channel_names, known_channel, settings_model
from gateway.domain.channels.channel import Channel, DeepLinkChannel, ExclusiveChannel, ProbedChannel
from gateway.domain.channels.channel_facts import NoFacts
from gateway.domain.channels.platform import PlatformError
from gateway.domain.errors import OwnerMustAct
from gateway.flow.channels.manager import channel_specs
from gateway.flow.setup.saving import Connected, Section, Setup

_TEST_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Form:
    """What a person needs to connect a messenger: the steps, a text to copy, and what to paste, by field."""

    name: str
    title: str
    steps: str
    copy: str
    fields: Mapping[str, str]


def forms() -> list[Form]:
    """Every messenger, by name."""
    return [_form(name) for name in channel_names()]


def _form(name: str) -> Form:
    model = settings_model(name)
    about = {field: model.model_fields[field].description or field for field in model.VARIABLES.values()}
    return Form(name, model.TITLE, model.STEPS, model.COPY, about)


async def connect_channel(setup: Setup, name: str, pasted: Mapping[str, str]) -> Connected:
    """Ask the platform who the tokens belong to, then save them; raises `OwnerMustAct` with what to do."""
    model = settings_model(known_channel(name, channel_names()))
    tokens = {field: pasted.get(field, "").strip() for field in model.VARIABLES.values()}
    if missing := [model.model_fields[field].description for field, token in tokens.items() if not token]:
        raise OwnerMustAct(f"paste {missing[0]}")
    keys = {variable: tokens[field] for variable, field in model.VARIABLES.items()}
    setup.check_unset(keys, (f"channels.{name}.{field}" for field in tokens))
    for token in tokens.values():
        setup.hide(token)
    running = setup.config().channels.get(name, {})
    section: Section = {**running, **tokens, "enabled": True}
    [spec] = channel_specs({name: section}, (), setup.environment.data, lambda _: NoFacts()).values()
    known = running.get("enabled") is not False and all(running.get(field) == token for field, token in tokens.items())
    who, link = await _test(spec.make(), in_use=known) if tokens else (model.TITLE, "")
    change: Section = {field: f"$env:{variable}" for variable, field in model.VARIABLES.items()}
    if not change or setup.written(f"channels.{name}").get("enabled") is False:
        change["enabled"] = True
    return replace(setup.save(who, f"channels.{name}", change, name, keys), link=link)


async def _test(channel: Channel, *, in_use: bool) -> tuple[str, str]:
    """Our name there, and where codes are handed over; what receives already, because it is us, is not disturbed."""
    if not isinstance(channel, ProbedChannel):
        return channel.name, ""
    try:
        async with asyncio.timeout(_TEST_SECONDS):
            who = await channel.probe()
            if isinstance(channel, ExclusiveChannel) and not in_use:
                await channel.check_unused()
            return who, channel.deep_link("") if isinstance(channel, DeepLinkChannel) else ""
    except TimeoutError:
        raise OwnerMustAct(f"{channel.name} doesn't answer; check the network, then try again") from None
    except PlatformError as error:
        raise OwnerMustAct(f"{error}; try again") from error
    finally:
        await channel.close()
