"""Foreign errors become ours here, and nowhere else."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from asyncpg import (
    InsufficientPrivilegeError,
    InterfaceError,
    InternalClientError,
    InvalidCachedStatementError,
    PostgresError,
)

from gateway.domain.errors import DatabaseDown, OwnerMustAct, RunLost, SupaclawError

RUN_LOST = "SW001"
OWNER_MUST_ACT = "SW002"
DISK_FULL = "53100"
_OWN = ("21", "22", "23", "426", "42804", "42846", "44", "54", "P0")
"""SQLSTATE beginnings of what a statement was given: it is wrong, not unique, too much, refused by a trigger. Only
these are its own fault; of class 42, that is what cannot be read, not what is not there or not allowed."""
_CONFLICT = ("40001", "40P01")
_BUSY = ("55P03", "57014")
"""A lock not to be had, a statement cancelled: the same may work in a moment."""
_DOWN = ("08", "25P03", "25P04", "53", "57P", "58")
"""SQLSTATE beginnings: connection, a transaction out of its time, out of disk or slots, shutdown, the server's own
I/O. Any other one says that the server works and refuses us."""
_CURE = "check that its server runs and has room"
_GONE = re.compile("clos(ed|ing)|released back to the pool")


class Conflict(DatabaseDown):
    """Two transactions were in each other's way (a deadlock, a column added): the same works at once."""


@contextmanager
def reaching() -> Iterator[None]:
    """Raise `DatabaseDown` for whatever fails before the first statement: no statement can be the reason."""
    try:
        yield
    except SupaclawError:
        raise
    except Exception as error:
        raise (_translate(error) or _refused(error)) from error


@contextmanager
def translated(*, denying: bool = False) -> Iterator[None]:
    """Raise one of our errors for one of asyncpg's, unless the statement itself is the reason.

    With `denying`, a lack of rights counts as such a reason.
    """
    try:
        yield
    except (PostgresError, InterfaceError, InternalClientError, ConnectionError, TimeoutError) as error:
        if denying and isinstance(error, InsufficientPrivilegeError):
            raise
        ours = _translate(error)
        if ours is None:
            raise
        raise ours from error


def _refused(error: Exception) -> DatabaseDown:
    """The server's administrator may fix it, so neither the process nor its work ends."""
    cure = "check database.url, and the role, its rights and its limits on that server"
    return DatabaseDown(f"The database refuses the request: {_line(error)}; {cure}")


def _translate(error: Exception) -> SupaclawError | None:
    match error:
        case PostgresError():
            return _translate_state(error)
        case InterfaceError():
            return DatabaseDown(f"The database connection is gone: {error}") if _GONE.search(str(error)) else None
        case InternalClientError():
            return _refused(error)
        case TimeoutError():
            return DatabaseDown("The database did not answer in time")
        case OSError():
            return DatabaseDown(f"The database cannot be reached: {_line(error)}; {_CURE}")
        case _:
            return None


def _translate_state(error: PostgresError) -> SupaclawError | None:
    state: str = error.sqlstate or ""
    if state == RUN_LOST:
        return RunLost(str(error))
    if state == OWNER_MUST_ACT:
        return OwnerMustAct(str(error))
    if "unsupported startup parameter" in str(error):
        return OwnerMustAct(
            "There is a pooler in front of the database: add ?pool_mode=transaction to the database URL"
        )
    if state.startswith(_OWN):
        return None
    if state.startswith(_CONFLICT) or isinstance(error, InvalidCachedStatementError):
        return Conflict(f"The database is too busy: {_line(error)}")
    if state.startswith(_BUSY):
        return DatabaseDown(f"The database is too busy: {_line(error)}")
    if state == DISK_FULL:
        return DatabaseDown(f"The database's disk is full (by default the data folder's): {_line(error)}; make room")
    if state.startswith(_DOWN):
        return DatabaseDown(f"The database is not available: {_line(error)}; {_CURE}")
    return _refused(error)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
