"""The logger interface for plug-ins: an event's name and its facts; compatible with structlog."""

from typing import Protocol


class Logger(Protocol):
    """Logs events of a plug-in; never pass it a secret."""

    def info(self, event: str, /, **facts: object) -> object:
        """A normal event."""

    def warning(self, event: str, /, **facts: object) -> object:
        """A problem that resolves itself."""

    def error(self, event: str, /, **facts: object) -> object:
        """A problem that the owner has to fix."""

    def exception(self, event: str, /, **facts: object) -> object:
        """A bug: logs the current exception with its traceback."""
