"""`supaclaw logs`."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.logs.readable import Readable
from gateway.logs.reading import Tail, at_least, event_of, find_session
from gateway.logs.trails import Trail, gateway_trail, session_trail

LOOK_SECONDS = 0.25


class LogLevel(StrEnum):
    """How bad a line has to be to be shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


def logs(
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="A session's id, or enough of its beginning; none: the gateway's log."),
    ] = None,
    day: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="Which day (UTC); otherwise the latest."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")] = False,
    level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", help=f"Leave out what is less bad: {', '.join(LogLevel)}.")
    ] = LogLevel.DEBUG,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines as they are kept.")] = False,
    last: Annotated[int | None, typer.Option("--last", "-n", min=0, metavar="N", help="Only the last N lines.")] = None,
) -> None:
    """Show what the gateway did, or what was done in one session. Sessions are listed by `supaclaw sessions`."""
    folder = Environment.read(os.environ).data / "logs"
    trail = session_trail(folder, find_session(folder, session)) if session else gateway_trail(folder)
    tail = Tail(trail, _day(trail, day, follow=follow), _today)
    show = Shown(level, as_json=as_json, in_session=session is not None)
    with suppress(KeyboardInterrupt):
        _print(_last(show.lines(tail.lines()), last))
        while follow:
            time.sleep(LOOK_SECONDS)
            _print(show.lines(tail.lines()))


class Shown:
    """Lines of a log file as they are printed: those bad enough, readable unless JSON is wanted."""

    def __init__(self, level: LogLevel, *, as_json: bool, in_session: bool) -> None:
        self._level = level
        self._readable = None if as_json else Readable(sys.stdout)
        self._left_out = {"session_id"} if in_session else set()

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """What is to be printed of these; a torn line is shown as it is, but is no JSON."""
        for line in lines:
            event = event_of(line)
            if event is None:
                yield from () if self._readable is None else (self._readable.line({"event": line}),)
            elif at_least(event, self._level):
                yield line if self._readable is None else self._readable.line(self._brief(event))

    def _brief(self, event: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        return {key: value for key, value in event.items() if key not in self._left_out}


def _day(trail: Trail, wanted: datetime | None, *, follow: bool) -> date:
    """The day to begin with: the one asked for, else the latest there is; raises `OwnerMustAct`."""
    days = list(trail.files())
    if wanted is None and follow:
        return _today()
    if follow and wanted and wanted.date() != _today():
        raise OwnerMustAct("--follow shows what comes from now on; leave out --day")
    if wanted is None and days:
        _mention(days)
        return days[-1]
    if wanted and wanted.date() in days:
        return wanted.date()
    raise OwnerMustAct(_nothing(trail.folder, wanted, days))


def _mention(days: list[date]) -> None:
    """The day is told when it could be mistaken for another."""
    if days[-1] != _today():
        print(f"nothing was logged today; this is {days[-1]} (UTC)", file=sys.stderr)


def _nothing(folder: Path, wanted: datetime | None, days: list[date]) -> str:
    if wanted is None or not days:
        return f"nothing was logged in {folder} yet; `supaclaw up` starts the gateway"
    span = f"{days[0]} to {days[-1]}" if len(days) > 1 else str(days[0])
    return f"nothing was logged on {wanted:%Y-%m-%d} (UTC); there are logs of {span}"


def _last(lines: Iterable[str], count: int | None) -> Iterable[str]:
    return lines if count is None else deque(lines, maxlen=count)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()


def _today() -> date:
    return datetime.now(UTC).date()
