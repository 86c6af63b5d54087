"""Loads config.json: references, environment, validation; reports all problems at once."""

import errno
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from pydantic import JsonValue, ValidationError

from gateway.config.data.files import read_regular
from gateway.config.environment import Environment
from gateway.config.model import Config
from gateway.config.problems import dotted, explain
from gateway.config.references import Lookup, resolve, unresolved
from gateway.config.variables import overruled, variables
from gateway.domain.errors import ConfigError


def secrets_unavailable(name: str) -> NoReturn:
    """A lookup where no secret can be, for there is no database yet."""
    raise ConfigError(f"there is no secret {name}; `supaclaw secrets set {name}` stores one")


def load(path: Path, environ: Mapping[str, str], secrets: Lookup = secrets_unavailable) -> Config:
    """Load the configuration at `path`, or the defaults without a file; raises `ConfigError`, one line per problem."""
    text = read(path)
    return parse("{}" if text is None else text, environ, secrets, source=path.name)


def load_early(environment: Environment, environ: Mapping[str, str]) -> Config:
    """The same while the database cannot be asked: what it may hold stays a reference, which nobody may use."""
    return load(environment.config, environ, unresolved)


def read(path: Path) -> str | None:
    """The text of the file, None if it does not exist.

    Raises `ConfigError`, or `OSError` when too many files are open.
    """
    try:
        return read_regular(path).decode("utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise ConfigError(f"{path}: cannot be read: {_reason(error)}") from error


def parse(
    text: str, environ: Mapping[str, str], secrets: Lookup = secrets_unavailable, source: str = "config.json"
) -> Config:
    """Parse the configuration and apply the environment's overrides; raises `ConfigError`, one line per problem."""
    raw = parse_json(text, source)
    raw.pop("$schema", None)
    resolved, problems = resolve(overruled(raw, environ), environ, secrets)
    if problems:
        raise ConfigError(_prefixed(source, problems, raw, environ))
    try:
        return Config.model_validate(resolved)
    except ValidationError as error:
        raise ConfigError(_prefixed(source, explain(error, Config), raw, environ)) from None


def parse_json(text: str, source: str = "config.json") -> dict[str, JsonValue]:
    """Parse a JSON object; raises `ConfigError` with line and column."""
    try:
        raw: JsonValue = json.loads(text, object_pairs_hook=_without_repeats)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{source}: line {error.lineno}, column {error.colno}: {error.msg}") from None
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
    """A line per problem, after the variable that it is about, else after the file's name."""
    named = {dotted(path): name for path, name in variables(environ).items()}

    def place(problem: str) -> str:
        key = problem.partition(":")[0]
        inside = (name for path, name in named.items() if path.startswith(f"{key}.") and key not in raw)
        return named.get(key) or next(inside, source)

    return "\n".join(f"{place(problem)}: {problem}" for problem in problems)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or "unknown error" if isinstance(error, OSError) else "it is not UTF-8 text"
