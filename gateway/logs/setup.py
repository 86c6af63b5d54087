"""Where log lines go: structlog's and those of other libraries, through one sink."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NoReturn, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from gateway.logs.files import DailyFile, SessionFiles
from gateway.logs.mask import SecretMask
from gateway.logs.readable import Readable
from gateway.logs.trails import session_of


@contextmanager
def logging_to(
    folder: Path | None,
    mask: SecretMask,
    console: TextIO | None = None,
    level: int = logging.INFO,
    today: Callable[[], date] = lambda: datetime.now(UTC).date(),
) -> Iterator[None]:
    """Send log lines to `folder` (None: no file) and to `console` (stderr); what neither takes is dropped."""
    sink = _Sink(folder, mask, sys.stderr if console is None else console, today)
    bridge = _Bridge(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            sink,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    logging.getLogger().addHandler(bridge)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(bridge)
        structlog.reset_defaults()
        sink.close()


class _Sink:
    """The end of every line: masked once, then written to each place; none of them can stop another or the program."""

    def __init__(self, folder: Path | None, mask: SecretMask, console: TextIO, today: Callable[[], date]) -> None:
        self._mask = mask
        self._console = console
        self._readable = Readable(console)
        self._file = DailyFile(folder, today) if folder else None
        self._sessions = SessionFiles(folder, today) if folder else None

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> NoReturn:
        with suppress(Exception):
            self._write(self._masked(structlog.processors.format_exc_info(logger, method, event)))
        raise structlog.DropEvent

    def close(self) -> None:
        """Let go of the files."""
        if self._file and self._sessions:
            self._file.close()
            self._sessions.close()

    def _write(self, event: EventDict) -> None:
        line = json.dumps(event, ensure_ascii=False)
        with suppress(OSError):
            if self._file:
                self._file.write(line)
        with suppress(OSError):
            if self._sessions and (session := session_of(event.get("session_id"))):
                self._sessions.write(session, line)
        with suppress(OSError, ValueError):
            print(self._readable.line(event), file=self._console, flush=True)

    def _masked(self, event: EventDict) -> EventDict:
        """Its time, level and name first; of facts too wild to be written (one that holds itself), just those."""
        first = {"timestamp": event.pop("timestamp"), "level": event.pop("level")}
        first["event"] = self._mask.value(event.pop("event"))
        with suppress(Exception):
            return first | {key: self._mask.value(item) for key, item in event.items()}
        return first | {"facts": "these cannot be shown", "session_id": self._mask.value(event.get("session_id"))}


class _Bridge(logging.Handler):
    """Carries what other libraries log, from warnings up, into our log; a run's ids go with what is said inside it."""

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises, whatever the library hands over."""
        with suppress(Exception):
            level = min(record.levelno // 10 * 10, logging.CRITICAL)
            structlog.get_logger().log(level, _message(record), logger=record.name, exc_info=record.exc_info)


def _message(record: logging.LogRecord) -> str:
    """A broken format string is told as it stands."""
    for text in (record.getMessage, lambda: str(record.msg)):
        with suppress(Exception):
            return text()
    return "a message that cannot be shown"
