"""`"$env:NAME"` and `"$secret:NAME"`: values of config.json that are stored elsewhere."""

from collections.abc import Callable, Mapping
from typing import NoReturn

from pydantic import JsonValue

from gateway.config.data.keys import read_keys
from gateway.config.environment import Environment
from gateway.config.problems import KeyPath, dotted
from gateway.domain.errors import ConfigError

Lookup = Callable[[str], str]
"""Gives the value of a name; raises `ConfigError` if there is none."""
SECRET = "$secret:"
NEEDED_FIRST = frozenset({"database", "web"})
"""What a start needs to get at the secrets."""


class Unopened(ConfigError):
    """There is such a secret, and why it cannot be opened."""


def unresolved(name: str) -> str:
    """A lookup for whoever needs no secret: the reference stays."""
    return f"{SECRET}{name}"


def resolve(
    raw: Mapping[str, JsonValue], environ: Mapping[str, str], secrets: Lookup
) -> tuple[dict[str, JsonValue], list[str]]:
    """`raw` with every reference replaced, and one line per reference that failed."""

    def variable(name: str, otherwise: Lookup) -> str:
        if value := environ.get(name):
            return value
        place = Environment.read(environ)
        if saved := read_keys(place.data).get(name):
            return saved
        try:
            return otherwise(name)
        except Unopened:
            raise
        except ConfigError:
            problem = f"the environment variable {name} is not set"
        raise ConfigError(f"{problem}; write {name}=… into {place.env_file} and start again")

    def lookups(section: str) -> Mapping[str, Lookup]:
        stored = _too_early if section in NEEDED_FIRST else secrets
        return {"$env:": lambda name: variable(name, stored), SECRET: stored}

    problems: list[str] = []
    return {key: _replaced(value, (key,), lookups(key), problems) for key, value in raw.items()}, problems


def _too_early(name: str) -> NoReturn:
    raise ConfigError(f"a start needs this before it can read secrets; use $env:{name}")


def is_reference(value: JsonValue) -> bool:
    """Whether `value` is a reference."""
    return isinstance(value, str) and value.startswith(("$env:", SECRET))


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
