"""Deletes objects that no path has any more: earlier versions of files, and what a crash left."""

import re
from datetime import datetime
from functools import partial

from gateway.net.object_store import ObjectStore
from gateway.store import synced
from gateway.store.connection.pool import Database

MOST = 10_000
"""In one sweep."""
_NAME = re.compile(r"[0-9a-f]{64}")


async def sweep(database: Database, store: ObjectStore, before: datetime) -> int:
    """Delete those that were stored before then; returns how many. Raises `TryAgainLater`."""
    total = await _deleted(database, store, [])  # what a sweep before has left
    async for names in store.names(before):
        total += await _deleted(database, store, [name for name in names if _NAME.fullmatch(name)])
        if total >= MOST:
            break
    return total


async def _deleted(database: Database, store: ObjectStore, found: list[str]) -> int:
    place = store.address.place
    swept = await database.run(partial(synced.begin_sweep, place=place, found=found))
    for name in swept:
        await store.delete(name)
    await database.run(partial(synced.end_sweep, place=place, gone=swept))
    return len(swept)
