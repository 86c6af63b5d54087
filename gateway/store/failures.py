"""Foreign errors become ours here, and nowhere else."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from asyncpg import InterfaceError, PostgresError

from gateway.domain.errors import DatabaseDown, OwnerMustAct, RunLost, SupaclawError, TryAgainLater

RUN_LOST = "SW001"
OWNER_MUST_ACT = "SW002"
_DOWN = ("08", "25006", "25P03", "25P04", "53", "57P", "58")
"""SQLSTATE beginnings: connection, read-only server, a transaction out of its time, out of disk or slots, shutdown, the
server's own I/O."""
_CONFLICT = ("40001", "40P01")
_BUSY = ("55P03", "57014")
"""A lock not to be had, a statement cancelled: the same may work in a moment."""
_GONE = re.compile("clos(ed|ing)|released back to the pool")
_REFUSED = ("28", "3D000")
"""Wrong user or password, no such database."""


class Conflict(TryAgainLater):
    """Two transactions were in each other's way (serialization failure, deadlock); the same works at once."""


@contextmanager
def translated(*also_down: type[Exception]) -> Iterator[None]:
    """Raise one of our errors for what asyncpg raises, if there is one for it; `also_down` counts as down too."""
    foreign: tuple[type[Exception], ...] = (PostgresError, InterfaceError, ConnectionError, TimeoutError, *also_down)
    try:
        yield
    except foreign as error:
        ours = _translate(error)
        if ours is None:
            raise
        raise ours from error


def _translate(error: Exception) -> SupaclawError | None:
    match error:
        case PostgresError():
            return _translate_state(error)
        case InterfaceError():
            return DatabaseDown(f"The database connection is gone: {error}") if _GONE.search(str(error)) else None
        case TimeoutError():
            return DatabaseDown("The database did not answer in time")
        case _:
            return DatabaseDown(f"The database cannot be reached: {error}")


def _translate_state(error: PostgresError) -> SupaclawError | None:
    state: str = error.sqlstate or ""
    if state == RUN_LOST:
        return RunLost(str(error))
    if state == OWNER_MUST_ACT:
        return OwnerMustAct(str(error))
    if "unsupported startup parameter" in str(error):
        return OwnerMustAct("A pooler stands before the database: add ?pool_mode=transaction to the database URL")
    if state.startswith(_REFUSED):
        return OwnerMustAct(f"The database refuses us: {error}; check the database URL")
    if state.startswith(_CONFLICT):
        return Conflict(f"The database is too busy: {error}")
    if state.startswith(_BUSY):
        return TryAgainLater(f"The database is too busy: {error}")
    return DatabaseDown(f"The database is not available: {error}") if state.startswith(_DOWN) else None
