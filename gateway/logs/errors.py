"""Errors that end nothing: they are logged where they happen, and the work goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.typing import FilteringBoundLogger


@contextmanager
def logged(log: FilteringBoundLogger, event: str, *kinds: type[Exception], **facts: object) -> Iterator[None]:
    """Log errors of these kinds by their text instead of raising them; without kinds, any error with its traceback."""
    try:
        yield
    except Exception as error:
        if not kinds:
            log.exception(event, **facts)
        elif isinstance(error, kinds):
            log.warning(event, error=str(error), **facts)
        else:
            raise
