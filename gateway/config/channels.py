"""The channels that exist, and their settings; each channel's module defines the model of its section."""

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

from gateway.config.model import Config
from gateway.config.problems import explain, nearest
from gateway.domain.errors import ConfigError
from gateway.domain.settings import ChannelSettings

Settings = TypeVar("Settings", bound=BaseModel)


def channel_names(package: str = "channels") -> tuple[str, ...]:
    """The channels that can be configured: the modules of the package, listed without importing them."""
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec else None
    return tuple(sorted(module.name for module in iter_modules(places or []) if not module.name.startswith("_")))


def known_channel(name: str, known: tuple[str, ...], section: str = "channels") -> str:
    """Return `name`; raises `ConfigError`, suggesting the nearest name, if there is no such channel."""
    if name not in known:
        raise ConfigError(f"{section}.{name}: unknown channel; {nearest(name, known)}")
    return name


def parse_channel(name: str, raw: Mapping[str, JsonValue], model: type[Settings]) -> Settings:
    """Parse a channel's section with its own model; raises `ConfigError` naming `channels.<name>.<field>`."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, model, ("channels", name)))) from None


def enabled_channels(sections: Mapping[str, Mapping[str, JsonValue]]) -> tuple[str, ...]:
    """The channels whose section does not set `"enabled": false`."""
    return tuple(name for name, raw in sections.items() if raw.get("enabled") is not False)


def check_owner(ids: Mapping[str, str]) -> None:
    """Raise `ConfigError` if an id, by channel, is not a person's on that platform."""
    for name, id in ids.items():
        model = settings_model(known_channel(name, channel_names(), "owner"))
        if not re.fullmatch(model.PERSON, id):
            raise ConfigError(f"owner.{name}: must be your own id; {model.IDS}")


def check_channels(config: Config) -> None:
    """Validate the section of every enabled channel with the channel's own model, and the owner's ids.

    Raises `ConfigError`, one line per problem.
    """
    known, problems, sections = channel_names(), [], config.channels
    try:
        check_owner(config.owner.ids)
    except ConfigError as error:
        problems.append(str(error))
    for name, raw in sections.items():
        try:
            model = settings_model(known_channel(name, known))
            if name in enabled_channels(sections):
                parse_channel(name, raw, model)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("\n".join(problems))


def settings_model(name: str) -> type[ChannelSettings]:
    """The model that a channel's module exports as `Settings`; imports that module, not its SDK."""
    model: object = import_module(f"channels.{name}").Settings
    if not isinstance(model, type) or not issubclass(model, ChannelSettings):
        raise TypeError(f"channels.{name}.Settings is not a model of settings")
    return model
