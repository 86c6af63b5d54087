"""Where log lines go: structlog's and those of other libraries, through one sink; and the mask that keeps secrets out
of them and of everything else that is printed."""

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
"""Less would hide ordinary words."""


class SecretMask:
    """Takes secrets out of texts: the values it was told, and what looks like a key, a token or a password.

    `leaks` finds what is certainly secret, in any text: the stored secrets and those of the settings. Log lines lack
    more: variables that are named like a secret, short values, shapes.
    """

    def __init__(self) -> None:
        self.leaks = Leaks()
        self._told = Leaks(_SHORTEST)
        self._settings: dict[str, str] = {}
        self._stored: Mapping[str, str] = {}
        self._others: dict[str, str] = {}

    def add(self, value: str) -> None:
        """Hide `value` in logs from now on; fewer than 6 characters are not taken."""
        self._others[value] = _HIDDEN
        self._tell()

    def learn(self, settings: object) -> None:
        """Hide every secret in these settings."""
        match settings:
            case SecretStr():
                self._settings[settings.get_secret_value()] = _HIDDEN
                self._tell()
            case BaseModel():
                for _, value in settings:
                    self.learn(value)
            case Mapping():
                for value in settings.values():
                    self.learn(value)

    def stored(self, values: Mapping[str, str]) -> None:
        """Replace these values, and no earlier ones, each by the text that stands for it."""
        self._stored = values
        self._tell()

    def text(self, text: str) -> str:
        """`text` without secrets."""
        text, _ = self._told.clean(text)
        return CREDENTIAL_SHAPES.sub(lambda match: "".join(filter(None, match.groups())) + _HIDDEN, text)

    def _tell(self) -> None:
        self.leaks.learn(self._settings | dict(self._stored))
        self._told.learn(self._others | self._settings | dict(self._stored))

    def value(self, value: object) -> object:
        """`value` as JSON knows it, every text in it without secrets; what JSON does not know is written as text."""
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
    """Send log lines to `folder` (None: no file) and to `console` (stderr); what neither takes is dropped."""
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
    """The end of every line: masked once, then written to each place; none of them can stop another or the program."""

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
        """Its time, level and name first; a fact too wild to be written, such as one that holds itself, is left out."""
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
    """Carries what other libraries log, from warnings up, into our log; a run's ids go with what is said inside it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises, whatever the library hands over; a broken format string is told as it stands."""
        with suppress(Exception):
            text, level = str(record.msg), min(record.levelno // 10 * 10, logging.CRITICAL)
            with suppress(Exception):
                text = record.getMessage()
            structlog.get_logger().log(level, text, logger=record.name, exc_info=record.exc_info)
