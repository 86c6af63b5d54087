"""A log as plug-ins see it: an event's name and its facts; structlog's loggers fit."""

from typing import Protocol


class Logger(Protocol):
    """Where a plug-in says what happened; never given a secret."""

    def info(self, event: str, /, **facts: object) -> object:
        """Something worth knowing."""
        ...

    def warning(self, event: str, /, **facts: object) -> object:
        """Something that mends itself."""
        ...

    def error(self, event: str, /, **facts: object) -> object:
        """Something the owner has to mend."""
        ...

    def exception(self, event: str, /, **facts: object) -> object:
        """Our bug: the exception being handled is logged with its traceback."""
        ...
