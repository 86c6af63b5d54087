"""The context of the checks: their input, and how to load it."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gateway.config.environment import Environment
from gateway.config.load import Lookup, load, parse, secrets_unavailable
from gateway.config.model import Config
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.health import Finding, FindingLevel


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The input of the checks; if config.json is invalid, `config` holds the defaults and `problem` the reason."""

    environment: Environment
    environ: Mapping[str, str]
    config: Config
    problem: ConfigError | None = None
    live: bool = False
    """Whether to call the model and the messengers."""


def ok(text: str) -> Finding:
    """A passed check."""
    return Finding(FindingLevel.OK, text)


def warn(text: str, fix: str) -> Finding:
    """A check that found something to improve."""
    return Finding(FindingLevel.WARN, text, fix)


def fail(text: str, fix: str) -> Finding:
    """A failed check."""
    return Finding(FindingLevel.FAIL, text, fix)


Check: TypeAlias = Callable[[CheckContext], Iterator[Finding]]


def load_context(
    environment: Environment, environ: Mapping[str, str], *, live: bool, secrets: Lookup = secrets_unavailable
) -> CheckContext:
    """Load the context of the checks, even if config.json is invalid."""
    try:
        return CheckContext(environment, environ, load(environment.config, environ, secrets), live=live)
    except ConfigError as problem:
        return CheckContext(environment, environ, parse("{}", environ), problem, live=live)


def refused(error: OwnerMustAct) -> Finding:
    """A failed check for an error that would stop a start; the error's text ends with the fix."""
    parts = re.split(r"[;:] (?!.*[;:] )", str(error))
    return fail(parts[0], parts[-1])
