"""Where log lines go: structlog's and those of other libraries, through one sink."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NoReturn, TextIO

import structlog
from structlog.contextvars import merge_contextvars
from structlog.processors import TimeStamper, add_log_level, format_exc_info
from structlog.typing import EventDict, WrappedLogger

from gateway.domain.text.texts import json_text
from gateway.logs.files import LogFiles, gateway_trail, session_trail
from gateway.logs.lines import readable
from gateway.logs.mask import SecretMask


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
        self._readable = readable(console)

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
