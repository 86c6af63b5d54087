"""Changes of the memory by web requests, each in one transaction."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.agent.memory.remember import MemoryRefused as NotDone
from gateway.agent.memory.remember import Remembering, UnknownMemory
from gateway.domain.memory import EVERYTHING, Reach
from gateway.web.http.errors import Refused
from gateway.web.site import Site

Result = TypeVar("Result")


async def in_memory(site: Site, work: Callable[[Remembering], Awaitable[Result]], reach: Reach = EVERYTHING) -> Result:
    """Work on what `reach` shows of the owner's memory; raises `Refused`."""
    try:
        return await site.backend.database.run(
            lambda tx: work(Remembering(tx, site.backend.owner.id, reach, site.clean))
        )
    except UnknownMemory as reason:
        raise Refused(404, "not_found", str(reason)) from None
    except NotDone as reason:
        raise Refused(400, "not_done", str(reason)) from None
