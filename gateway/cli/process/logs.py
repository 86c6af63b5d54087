"""`supaclaw logs`: print the log of the gateway or of a session."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Annotated

from gateway.cli.terminal.console import echo, echo_log_line
from gateway.cli.terminal.output import argument, flag, option
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.text.texts import json_text
from gateway.logs.files import (
    Event,
    Level,
    Trail,
    at_least,
    event_of,
    find_session_trail,
    follow_lines,
    gateway_trail,
    line_renderer,
)

POLL_SECONDS = 0.25


def logs(
    session: Annotated[
        str | None, argument("A session's id or its beginning (default: the gateway's log).", "SESSION")
    ] = None,
    day: Annotated[date | None, option("The day in UTC.", "YYYY-MM-DD")] = None,
    follow: Annotated[bool, flag("Keep printing new lines until Ctrl-C.", "--follow", "-f")] = False,
    level: Annotated[Level, option("The lowest level to print.")] = "debug",
    as_json: Annotated[bool, flag("Print the raw lines.", "--json")] = False,
    last: Annotated[int | None, option("Only the last N lines.", "N", "--last", "-n", min=0)] = None,
) -> None:
    """Show the log of the gateway or of one session. `supaclaw sessions` lists the sessions."""
    folder = Environment.read(os.environ).data / "logs"
    trail = find_session_trail(folder, session) if session else gateway_trail(folder)
    look = follow_lines(trail, _first_day(trail, day, follow=follow), _today)
    show = json_text if as_json else _readable(without="session_id" if session else "")
    with suppress(KeyboardInterrupt):
        _print(next(look), level, show, last)
        while follow:
            time.sleep(POLL_SECONDS)
            _print(next(look), level, show)


def _readable(without: str) -> Callable[[Event], str]:
    show = line_renderer(sys.stdout)
    return lambda event: show({key: value for key, value in event.items() if key != without})


def _print(lines: Sequence[str], level: Level, show: Callable[[Event], str], last: int | None = None) -> None:
    events = (event for line in lines if at_least(event := event_of(line), level))
    for event in deque(events, maxlen=last):
        echo_log_line(show(event))


def _first_day(trail: Trail, wanted: date | None, *, follow: bool) -> date:
    """The requested day, else the latest with logs, with a note if that isn't today; raises `OwnerMustAct`."""
    days = trail.days()
    if follow and wanted not in {None, _today()}:
        raise OwnerMustAct("--follow shows new lines only; leave out --day")
    if follow:
        return _today()
    if not days:
        raise OwnerMustAct(f"nothing was logged in {trail.folder} yet; `supaclaw up` starts the gateway")
    day = wanted or days[-1]
    if day not in days:
        raise OwnerMustAct(f"nothing was logged on {day} (UTC); there are logs from {days[0]} to {days[-1]}")
    if wanted is None and day != _today():
        echo(f"nothing was logged today; this is {day} (UTC)", error=True)
    return day


def _today() -> date:
    return datetime.now(UTC).date()
