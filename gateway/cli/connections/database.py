"""The gateway's database, its owner and the owner's time zone, for commands that use them without the gateway."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime
from typing import TypeVar

from gateway.cli.terminal.console import show_after_a_second
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct, raising, required
from gateway.domain.ids import PrincipalId
from gateway.domain.time import moment
from gateway.logs import SecretMask, logging_to
from gateway.store.connection.pool import Connection, Database
from gateway.store.people import principals
from gateway.store.people.principals import PrincipalRow
from gateway.workspace.files.tree import Workspace
from gateway.workspace.instructions import Persona, zone_in

Result = TypeVar("Result")


def with_database(work: Callable[[Database], Awaitable[Result]]) -> Result:
    """Run `work` with the database; starts the embedded server if it is not running."""
    from gateway.app.storage.database import open_database

    environment = Environment.read(os.environ)
    config = load_early(environment, os.environ)

    async def run_work() -> Result:
        async with AsyncExitStack() as stack:
            with show_after_a_second("opening the database …"):
                database = await stack.enter_async_context(open_database(environment, config))
            return await work(database)

    return run_quietly(run_work())


def run_quietly(work: Coroutine[object, object, Result]) -> Result:
    """Run `work`; of the log, only warnings are shown."""
    with logging_to(None, SecretMask(), level=logging.WARNING):
        return asyncio.run(work)


def with_connection(work: Callable[[Connection], Awaitable[Result]]) -> Result:
    """Run `work` in one transaction."""
    return with_database(lambda database: database.run(work))


def with_owner(work: Callable[[Connection, PrincipalId], Awaitable[Result]]) -> Result:
    """Run `work` in one transaction, with the owner's id; raises `OwnerMustAct` if there is no owner yet."""

    async def run_work(conn: Connection) -> Result:
        return await work(conn, (await require_owner(conn)).id)

    return with_connection(run_work)


async def leak_guard(database: Database) -> Callable[[str], str]:
    """A function that replaces stored secrets in a text by their names, as a running gateway does."""
    from gateway.app.storage.offline import leak_guard

    return await leak_guard(database, Environment.read(os.environ), os.environ) or str  # no secret is stored


async def require_owner(conn: Connection) -> PrincipalRow:
    """The gateway's owner; raises `OwnerMustAct` if there is none yet."""
    owner = await principals.owner(conn)
    return required(owner, OwnerMustAct("there is no owner yet; start the gateway once, or use `supaclaw owner set`"))


def owners_zone() -> str | None:
    """The time zone that config.json or USER.md names; None if neither does."""
    environment = Environment.read(os.environ)
    owner, workspace = load_early(environment, os.environ).owner, Workspace(environment.workspace)
    return owner.timezone or zone_in(Persona(workspace).user(workspace))


def owners_moment(text: str, *, end: bool = False) -> datetime:
    """Parse a date or time in the owner's zone; with `end`, a date means its end. Raises `OwnerMustAct`."""
    unreadable = OwnerMustAct(f'"{text}" is not a date or time; write it like 2026-03-01 or 2026-03-01T09:30')
    with raising(unreadable, ValueError):
        return moment(text, owners_zone(), end=end)
