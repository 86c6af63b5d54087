"""Logs: JSON lines in a file a day, readable lines on the terminal, and no secret in either."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NoReturn, TextIO
from uuid import UUID

import structlog
from pydantic import BaseModel, SecretStr
from structlog.dev import ConsoleRenderer, plain_traceback
from structlog.typing import EventDict, Processor, WrappedLogger

_SHAPES = re.compile(
    r"(?P<kept>\bBearer\s+)[\w.~+/=-]{8,}"
    r"|(?P<bot>\bbot)?\d{6,}:[\w-]{30,}"
    r"|\b(?:sk|claw|xox[abp]|xapp|ghp|AIza)[-_]?[\w-]{12,}"
    r"|(?P<user>://[^\s:/@]+:)[^\s/@]+(?=@)"
)
_HIDDEN = "[hidden]"


class SecretMask:
    """Takes secrets out of texts: the values it was told, and what looks like a key, a token or a password."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._told: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        """Hide `value` from now on; fewer than 6 characters would hide ordinary words and are not taken."""
        if len(value) >= 6:
            self._values.add(value)
            longest_first = sorted(self._values, key=len, reverse=True)
            self._told = re.compile("|".join(map(re.escape, longest_first)))

    def learn(self, settings: object) -> None:
        """Hide every secret in these settings."""
        match settings:
            case SecretStr():
                self.add(settings.get_secret_value())
            case BaseModel():
                for _, value in settings:
                    self.learn(value)
            case Mapping():
                for value in settings.values():
                    self.learn(value)
            case _:
                pass

    def text(self, text: str) -> str:
        """`text` without secrets."""
        if self._told is not None:
            text = self._told.sub(_HIDDEN, text)
        return _SHAPES.sub(lambda match: "".join(filter(None, match.groups())) + _HIDDEN, text)

    def value(self, value: object) -> object:
        """`value` as JSON knows it, every text in it without secrets; what JSON does not know becomes its repr."""
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return self.text(value)
            case UUID() | Path() | date():
                return self.text(str(value))
            case Mapping():
                return {self.text(str(key)): self.value(item) for key, item in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
            case set() | frozenset():
                return sorted((self.value(item) for item in value), key=str)
            case _:
                return self.text(repr(value))


class DailyFile:
    """`gateway-YYYY-MM-DD.log` by UTC day, kept for ever; `gateway.log` leads to the newest."""

    def __init__(self, folder: Path, today: Callable[[], date]) -> None:
        self._folder = folder
        self._today = today
        self._day: date | None = None
        self._file: TextIO | None = None

    def write(self, line: str) -> None:
        """Append one line and hand it to the system; raises `OSError` when the disk does not take it."""
        day = self._today()
        if self._file is None or day != self._day:
            self.close()
            self._file = self._open(day)
            self._day = day
        self._file.write(f"{line}\n")
        self._file.flush()

    def close(self) -> None:
        """Let go of the file; what the disk did not take is lost."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _open(self, day: date) -> TextIO:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"gateway-{day:%Y-%m-%d}.log"
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "w", encoding="utf-8")
        _lead(self._folder / "gateway.log", path.name)
        return file


@contextmanager
def logging_to(
    folder: Path | None,
    mask: SecretMask,
    console: TextIO | None = None,
    level: int = logging.INFO,
    today: Callable[[], date] = lambda: datetime.now(UTC).date(),
) -> Iterator[None]:
    """Send log lines to `folder` (None: no file) and to `console` (stderr); what neither takes is dropped."""
    file = DailyFile(folder, today) if folder else None
    bridge = _Bridge(logging.WARNING)
    structlog.configure(
        processors=_processors(mask, file, sys.stderr if console is None else console),
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )
    logging.getLogger().addHandler(bridge)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(bridge)
        structlog.reset_defaults()
        if file:
            file.close()


def _processors(mask: SecretMask, file: DailyFile | None, console: TextIO) -> list[Processor]:
    render = ConsoleRenderer(colors=_colourful(console), exception_formatter=plain_traceback, sort_keys=False)

    def masked(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        first = {key: event.pop(key) for key in ("timestamp", "level", "event")}
        return {key: mask.value(item) for key, item in (*first.items(), *event.items())}

    def written(logger: WrappedLogger, method: str, event: EventDict) -> NoReturn:
        with suppress(OSError, ValueError):
            if file:
                file.write(json.dumps(event, ensure_ascii=False))
        with suppress(OSError, ValueError):
            print(render(logger, method, event), file=console, flush=True)
        raise structlog.DropEvent

    return [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        masked,
        written,
    ]


def _colourful(console: TextIO) -> bool:
    return console.isatty() and not os.environ.get("NO_COLOR")


def _lead(link: Path, target: str) -> None:
    """Point `link` at `target` in one step; a file system without links goes without."""
    beside = link.with_suffix(".new")
    with suppress(OSError):
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(link)


class _Bridge(logging.Handler):
    """Carries what other libraries log, from warnings up, into our log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Never raises: a library's broken format string is logged as it stands."""
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            text = str(record.msg)
        structlog.get_logger().log(record.levelno, text, logger=record.name, exc_info=record.exc_info)
