"""Sends log lines, structlog's and those of other libraries, through one sink; and masks secrets in them and in other
output."""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NoReturn, TextIO

import structlog
from pydantic import BaseModel, SecretStr
from structlog.contextvars import merge_contextvars
from structlog.processors import TimeStamper, add_log_level, format_exc_info
from structlog.typing import EventDict, WrappedLogger

from gateway.domain.people.credentials import CREDENTIAL_SHAPES
from gateway.domain.text.texts import json_text
from gateway.logs.files import LogFiles, gateway_trail, line_renderer, session_trail
from gateway.secrets.leaks import Leaks

_HIDDEN = "[hidden]"
_SHORTEST = 6
"""Characters; shorter values would hide ordinary words."""


class SecretMask:
    """Removes secrets from texts: known values, and text that looks like a key, a token or a password.

    `leaks` finds certain secrets, in any text: the stored ones and those of the settings. Log lines are masked further:
    variables with names like secrets, short values, shapes.
    """

    def __init__(self) -> None:
        self.leaks = Leaks()
        self._log_leaks = Leaks(_SHORTEST)
        self._settings: dict[str, str] = {}
        self._stored: Mapping[str, str] = {}
        self._others: dict[str, str] = {}

    def add(self, value: str) -> None:
        """Hide `value` in logs from now on; ignores fewer than 6 characters."""
        self._others[value] = _HIDDEN
        self._update()

    def learn(self, settings: object) -> None:
        """Hide every secret in these settings."""
        match settings:
            case SecretStr():
                self._settings[settings.get_secret_value()] = _HIDDEN
                self._update()
            case BaseModel():
                for _, value in settings:
                    self.learn(value)
            case Mapping():
                for value in settings.values():
                    self.learn(value)

    def stored(self, values: Mapping[str, str]) -> None:
        """Replace these values, each by its reference, and no longer those of the last call."""
        self._stored = values
        self._update()

    def text(self, text: str) -> str:
        """`text` without secrets."""
        text, _ = self._log_leaks.clean(text)
        return CREDENTIAL_SHAPES.sub(lambda match: "".join(filter(None, match.groups())) + _HIDDEN, text)

    def _update(self) -> None:
        self.leaks.learn(self._settings | dict(self._stored))
        self._log_leaks.learn(self._others | self._settings | dict(self._stored))

    def value(self, value: object) -> object:
        """`value` as JSON, without secrets in its texts; other types become text."""
        match value:
            case str():
                return self.text(value)
            case None | bool() | int() | float():
                return value
            case datetime():
                return value.isoformat()
            case Mapping():
                return {self.text(str(key)): self.value(item) for key, item in value.items()}
            case list() | tuple() | set() | frozenset():
                return [self.value(item) for item in value]
            case _:
                return self.text(str(value))


@contextmanager
def logging_to(
    folder: Path | None,
    mask: SecretMask,
    console: TextIO | None = None,
    level: int = logging.INFO,
    today: Callable[[], date] = lambda: datetime.now(UTC).date(),
) -> Iterator[None]:
    """Send log lines to `folder` (None: no file) and to `console` (default: stderr); lines that fail are dropped."""
    files = LogFiles(today)
    sink = _Sink(folder, files, mask, sys.stderr if console is None else console)
    bridge = _Bridge(logging.WARNING)
    structlog.configure(
        processors=[merge_contextvars, add_log_level, TimeStamper(fmt="iso", utc=True), sink],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    logging.getLogger().addHandler(bridge)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(bridge)
        structlog.reset_defaults()
        files.close()


class _Sink:
    """Masks each line and writes it to each target; a failing target stops neither another nor the program."""

    def __init__(self, folder: Path | None, files: LogFiles, mask: SecretMask, console: TextIO) -> None:
        self._folder = folder
        self._files = files
        self._mask = mask
        self._console = console
        self._readable = line_renderer(console)

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> NoReturn:
        with suppress(Exception):
            self._write(self._masked(format_exc_info(logger, method, event)))
        raise structlog.DropEvent

    def _masked(self, event: EventDict) -> EventDict:
        """The event without secrets, time, level and name first, and without values that can't be written."""
        shown: EventDict = {}
        for key in dict.fromkeys(("timestamp", "level", "event", *event)):
            with suppress(Exception):
                shown[key] = self._mask.value(event[key])
        return shown

    def _write(self, event: EventDict) -> None:
        if self._folder:
            line = json_text(event)
            session = session_trail(self._folder, event.get("session_id"))
            for trail in filter(None, (gateway_trail(self._folder), session)):
                with suppress(OSError):
                    self._files.write(trail, line)
        with suppress(OSError, ValueError):
            print(self._readable(event), file=self._console, flush=True)


class _Bridge(logging.Handler):
    """Passes on the warnings and errors of other libraries, with the ids of the current run."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record; never raises. A broken format string is logged as it is."""
        with suppress(Exception):
            text, level = str(record.msg), min(record.levelno // 10 * 10, logging.CRITICAL)
            with suppress(Exception):
                text = record.getMessage()
            structlog.get_logger().log(level, text, logger=record.name, exc_info=record.exc_info)
