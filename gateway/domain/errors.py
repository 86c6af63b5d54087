"""The error tree, by who can act on an error.

SupaclawError
├── OwnerMustAct     the operator must change something; the text says what
│   └── ConfigError
└── TryAgainLater    a temporary condition (database down, lease lost); safe to retry
    ├── DatabaseDown
    │   └── DiskFull
    └── RunLost
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

Value = TypeVar("Value")


class SupaclawError(Exception):
    """Base of all our errors; the text is one line."""

    code: str | None = None
    """The kind of error, for a model whose call it ends; None means the name of the class."""
    foreign = False
    """Whether the text quotes somebody else, or names what they chose."""


class OwnerMustAct(SupaclawError):
    """Only the operator can fix this; the text says how."""


class ConfigError(OwnerMustAct):
    """The configuration is wrong; the text names the key."""


class TryAgainLater(SupaclawError):
    """A retry may succeed; nothing was acknowledged without being stored."""


class DatabaseDown(TryAgainLater):
    """Postgres cannot be reached."""


class DiskFull(DatabaseDown):
    """The disk is full at a start, which continues once there is room."""


class RunLost(TryAgainLater):
    """The task was cancelled or taken over after this run claimed it: stop, and write nothing more."""


INTERRUPTIONS = (DatabaseDown, RunLost)
"""Errors that are no fault of the tool that raises them, so no model is told: the turn is repeated or has been lost.

A cancellation of the turn is the third. All else that a tool raises is its own, and the model gets it as the result.
"""


def required(value: Value | None, otherwise: Exception) -> Value:
    """The value; raises the error `otherwise` if there is none."""
    if value is None:
        raise otherwise
    return value


@contextmanager
def explained(text: str, kind: type[OwnerMustAct] = OwnerMustAct) -> Iterator[None]:
    """Turn an error of the system into one for the operator: the text, and the reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{text}: {error.strerror}") from error


@contextmanager
def raising(instead: Exception, *kinds: type[Exception]) -> Iterator[None]:
    """Raise the error `instead` where one of these kinds is raised, which becomes its cause."""
    try:
        yield
    except kinds as error:
        raise instead from error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors of a group, and those of the groups in it; any other error is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error
