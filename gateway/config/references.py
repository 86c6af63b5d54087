"""`"$env:NAME"` and `"$secret:NAME"`: values of config.json that are stored elsewhere."""

from collections.abc import Callable, Mapping

from pydantic import JsonValue

from gateway.config.environment import Environment
from gateway.config.keys import read_keys
from gateway.config.problems import KeyPath, dotted
from gateway.domain.errors import ConfigError

Lookup = Callable[[str], str]
"""Gives the value of a name; raises `ConfigError` if there is none."""


def resolve(
    raw: Mapping[str, JsonValue], environ: Mapping[str, str], secrets: Lookup
) -> tuple[dict[str, JsonValue], list[str]]:
    """`raw` with every reference replaced, and one line per reference that failed."""

    def variable(name: str) -> str:
        if value := environ.get(name):
            return value
        place = Environment.read(environ)
        if saved := read_keys(place.data).get(name):
            return saved
        problem = f"the environment variable {name} is not set"
        raise ConfigError(f"{problem}; write {name}=… into {place.env_file} and start again")

    problems: list[str] = []
    lookups = {"$env:": variable, "$secret:": secrets}
    return {key: _replaced(value, (key,), lookups, problems) for key, value in raw.items()}, problems


def is_reference(value: JsonValue) -> bool:
    """Whether `value` is a reference."""
    return isinstance(value, str) and value.startswith(("$env:", "$secret:"))


def _replaced(value: JsonValue, path: KeyPath, lookups: Mapping[str, Lookup], problems: list[str]) -> JsonValue:
    if isinstance(value, dict):
        return {key: _replaced(item, (*path, key), lookups, problems) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, (*path, index), lookups, problems) for index, item in enumerate(value)]
    if isinstance(value, str) and is_reference(value):
        scheme, _, name = value.partition(":")
        try:
            return lookups[f"{scheme}:"](name)
        except ConfigError as error:
            problems.append(f"{dotted(path)}: {error}")
    return value
