"""What a check sees, and what it looks at."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from gateway.config.environment import Environment
from gateway.config.load import load, parse
from gateway.config.model import Config
from gateway.domain.errors import ConfigError, OwnerMustAct


class Level(StrEnum):
    """How bad it is; one `FAIL` makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw, and what to do about it."""

    level: Level
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined; `config` holds the defaults where config.json is wrong, and `problem` says what is."""

    environment: Environment
    environ: Mapping[str, str]
    config: Config
    problem: ConfigError | None = None
    live: bool = False
    """Model and messengers are really asked."""


Check: TypeAlias = Callable[[Patient], Iterator[Finding]]


def admit(environment: Environment, environ: Mapping[str, str], *, live: bool) -> Patient:
    """The patient, whatever its config.json is like."""
    try:
        return Patient(environment, environ, load(environment.config, environ), live=live)
    except ConfigError as problem:
        return Patient(environment, environ, parse("{}", environ), problem, live=live)


def refused(error: OwnerMustAct) -> Finding:
    """What a start would refuse; such an error says what is wrong and, behind the last separator, what to do."""
    parts = re.split(r"[;:] (?!.*[;:] )", str(error))
    return Finding(Level.FAIL, parts[0], parts[-1])
