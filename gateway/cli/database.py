"""The gateway's database, for commands that read or change it themselves."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.domain.errors import OwnerMustAct
from gateway.logs import SecretMask, logging_to
from gateway.store.people import principals
from gateway.store.people.principals import PrincipalRow
from gateway.store.pool import Connection, Database

Result = TypeVar("Result")


def with_database(work: Callable[[Database], Awaitable[Result]]) -> Result:
    """What `work` makes of the database, which is started when it is the embedded one and does not run."""
    from gateway.app import open_database

    environment = Environment.read(os.environ)
    config = load(environment.config, os.environ)

    async def worked() -> Result:
        async with open_database(environment, config) as database:
            return await work(database)

    with logging_to(None, SecretMask(), level=logging.WARNING):
        return asyncio.run(worked())


async def the_owner(conn: Connection) -> PrincipalRow:
    """Whom the gateway belongs to; raises `OwnerMustAct` while that is nobody."""
    found = await principals.owner(conn)
    if found is None:
        raise OwnerMustAct("there is no owner yet; start the gateway once, or use `supaclaw owner set`")
    return found
