"""Loads config.json: the environment's variables, references, validation; reports all problems at once.

A variable sets a key by its full name, `SUPACLAW__A__B=…`, or by a short name that people expect. `"$env:NAME"` and
`"$secret:NAME"` are values that are stored elsewhere."""

import errno
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

from pydantic import JsonValue, ValidationError

from gateway.config.channels import channel_names, settings_model
from gateway.config.data.files import read_regular
from gateway.config.data.keys import read_keys
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.config.problems import dotted, explain
from gateway.domain.errors import ConfigError
from gateway.domain.json import KeyPath, json_or_text, map_texts

Lookup = Callable[[str], str]
"""Returns the value with a name; raises `ConfigError` if there is none."""
SECRET = "$secret:"
NEEDED_FIRST = frozenset({"database", "web"})
"""The sections that a start needs before it can read secrets."""


class SecretUnopened(ConfigError):
    """The secret exists but cannot be opened; the text says why."""


def keep_reference(name: str) -> str:
    """A lookup that leaves the reference in place, for callers that need no secrets."""
    return f"{SECRET}{name}"


def resolve_references(
    raw: Mapping[str, JsonValue], environ: Mapping[str, str], secrets: Lookup
) -> tuple[dict[str, JsonValue], list[str]]:
    """`raw` with every reference replaced, and one line per reference that failed."""

    @cache
    def saved_keys() -> Mapping[str, str]:
        return read_keys(Environment.read(environ).data)

    def variable(name: str, otherwise: Lookup) -> str:
        if value := environ.get(name) or saved_keys().get(name):
            return value
        try:
            return otherwise(name)
        except SecretUnopened:
            raise
        except ConfigError:
            problem = f"the environment variable {name} is not set"
        raise ConfigError(f"{problem}; write {name}=… into {Environment.read(environ).env_file} and start again")

    problems: list[str] = []

    def resolved(path: KeyPath, text: str) -> str:
        if not is_reference(text):
            return text
        stored = _too_early if path[0] in NEEDED_FIRST else secrets
        name = text.partition(":")[2]
        try:
            return stored(name) if text.startswith(SECRET) else variable(name, stored)
        except ConfigError as error:
            problems.append(f"{dotted(path)}: {error}")
            return text

    return {key: map_texts(value, resolved, (key,)) for key, value in raw.items()}, problems


def _too_early(name: str) -> NoReturn:
    raise ConfigError(f"a start needs this before it can read secrets; use $env:{name}")


def is_reference(value: JsonValue) -> bool:
    """Whether `value` is a reference."""
    return isinstance(value, str) and value.startswith(("$env:", SECRET))


def secrets_unavailable(name: str) -> NoReturn:
    """A lookup that finds no secret, for use before there is a database."""
    raise ConfigError(f"there is no secret {name}; `supaclaw secrets set {name}` stores one")


def load(path: Path, environ: Mapping[str, str], secrets: Lookup = secrets_unavailable) -> Config:
    """Load the configuration at `path`, or the defaults without a file; raises `ConfigError`, one line per problem."""
    text = read(path)
    return parse("{}" if text is None else text, environ, secrets, source=path.name)


def load_early(environment: Environment, environ: Mapping[str, str]) -> Config:
    """Load the configuration before the database can be read; references to secrets stay and must not be used."""
    return load(environment.config, environ, keep_reference)


def read(path: Path) -> str | None:
    """The text of the file, None if it does not exist.

    Raises `ConfigError`, or `OSError` when too many files are open.
    """
    try:
        return read_regular(path).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a folder, as a container makes one for a file that is missing; remove it, write the file "
            "({} is enough), and mount that"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise ConfigError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        ) from error


def parse(
    text: str, environ: Mapping[str, str], secrets: Lookup = secrets_unavailable, source: str = "config.json"
) -> Config:
    """Parse the configuration and apply the environment's overrides; raises `ConfigError`, one line per problem."""
    raw = parse_json(text, source)
    raw.pop("$schema", None)
    resolved, problems = resolve_references(overruled(raw, environ), environ, secrets)
    if problems:
        raise ConfigError(_prefixed(source, problems, raw, environ))
    try:
        return Config.model_validate(resolved)
    except ValidationError as error:
        raise ConfigError(_prefixed(source, explain(error, Config), raw, environ)) from None


_CURE = 'JSON has no comments, no comma after the last value, and straight quotes (") around names and texts'


def parse_json(text: str, source: str = "config.json") -> dict[str, JsonValue]:
    """Parse a JSON object; raises `ConfigError` with line and column."""
    try:
        raw: JsonValue = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        problem = error.msg.removesuffix(" starting at")
        raise ConfigError(f"{source}: line {error.lineno}, column {error.colno}: {problem}; {_CURE}") from None
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply") from None
    except (ConfigError, ValueError) as error:  # also a number of too many digits
        raise ConfigError(f"{source}: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{source}: must be an object {{ … }}")
    return raw


def _without_repeats(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ConfigError(f"the key {repeated!r} appears twice in one object; keep one")
    return keys


def _prefixed(source: str, problems: list[str], raw: Mapping[str, JsonValue], environ: Mapping[str, str]) -> str:
    """A line per problem, with the variable that it is about, or else the file's name, in front."""
    named = {dotted(path): name for path, name in variables(environ).items()}

    def place(problem: str) -> str:
        key = problem.partition(":")[0]
        inside = (name for path, name in named.items() if path.startswith(f"{key}.") and key not in raw)
        return named.get(key) or next(inside, source)

    return "\n".join(f"{place(problem)}: {problem}" for problem in problems)


Variables = Mapping[tuple[str, ...], str]
"""Names of variables by the path of the key that each sets."""

FULL_NAME = "SUPACLAW__"
SHORT_NAMES: Mapping[str, tuple[str, ...]] = {
    "BRAVE_API_KEY": ("tools", "web", "search", "brave_api_key"),
    "EXA_API_KEY": ("tools", "web", "search", "exa_api_key"),
    "SEARXNG_URL": ("tools", "web", "search", "searxng_url"),
    "TAVILY_API_KEY": ("tools", "web", "search", "tavily_api_key"),
    "SUPACLAW_DATABASE_URL": ("database", "url"),
    "SUPACLAW_HOST": ("web", "host"),
    "SUPACLAW_MODEL": ("models", "primary"),
    "SUPACLAW_OWNER_NAME": ("owner", "name"),
    "SUPACLAW_PORT": ("web", "port"),
    "SUPACLAW_PROXIES": ("web", "proxies"),
    "SUPACLAW_PUBLIC_URL": ("web", "public_url"),
    "SUPACLAW_TIMEZONE": ("owner", "timezone"),
}


def variables(environ: Mapping[str, str]) -> Variables:
    """The variables that set a key; a full name beats a short one, an empty variable counts as unset."""
    full = {name: tuple(name.removeprefix(FULL_NAME).lower().split("__")) for name in environ if _is_full(name)}
    return {path: name for name, path in (dict(_short_names(environ)) | full).items() if environ.get(name)}


def overruled(raw: Mapping[str, JsonValue], environ: Mapping[str, str]) -> dict[str, JsonValue]:
    """`raw` with the values of variables; a section that is not an object is left for validation to refuse."""
    merged = dict(raw)
    for path, name in variables(environ).items():
        _put_value(merged, path, _parse_variable(environ[name]))
    return merged


def variable_of(key: str, environ: Mapping[str, str]) -> str | None:
    """The variable that sets the dotted key, or a part of it; None if there is none."""
    path = tuple(key.split("."))
    return next((name for each, name in variables(environ).items() if each[: len(path)] == path[: len(each)]), None)


def usual_name(path: tuple[int | str, ...]) -> str:
    """The usual name of the variable for the key at `path`: its short name if it has one."""
    keys = tuple(str(part) for part in path)
    named = settings_model(keys[1]).VARIABLES if keys[0] == "channels" and keys[1] in channel_names() else {}
    short = {**SHORT_NAMES, **{name: (*keys[:2], field) for name, field in named.items()}}
    return next((name for name, at in short.items() if at == keys), FULL_NAME + "__".join(keys).upper())


def _short_names(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield short names with their paths; a channel's module is imported only if a variable has its prefix."""
    yield from SHORT_NAMES.items()
    for channel in channel_names():
        prefix = channel.upper()
        yield f"SUPACLAW_OWNER_{prefix}", ("owner", channel)
        if any(name.startswith(f"{prefix}_") for name in environ):
            names = settings_model(channel).VARIABLES
            yield from ((name, ("channels", channel, field)) for name, field in names.items())


def _is_full(name: str) -> bool:
    return name.startswith(FULL_NAME) and all(name.removeprefix(FULL_NAME).split("__"))


def _put_value(section: dict[str, JsonValue], path: tuple[str, ...], value: JsonValue) -> None:
    name, *rest = path
    inner = section.get(name, {})
    if not rest:
        section[name] = value
    elif isinstance(inner, dict):
        section[name] = copied = dict(inner)
        _put_value(copied, tuple(rest), value)


def _parse_variable(text: str) -> JsonValue:
    """Parse lists, objects, `true`, `false` and `null` as JSON; all else is text, which number keys accept."""
    return json_or_text(text) if text in ("true", "false", "null") or text.startswith(("[", "{")) else text
