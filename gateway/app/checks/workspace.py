"""The object store that keeps the workspace the same on several machines, if there is one."""

import asyncio
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gateway.app.checks.context import CheckContext, refused
from gateway.domain.errors import OwnerMustAct, TryAgainLater
from gateway.domain.findings import Finding, Level
from gateway.net.addresses import Rules
from gateway.net.object_store import Address, ObjectStore

_PROBE = b"supaclaw doctor"


def check_workspace(context: CheckContext) -> Iterator[Finding]:
    """Stores, reads and deletes a few bytes with `--live` only. Yields nothing without a store."""
    if context.config.workspace.url is None:
        return
    try:
        address = Address.of(context.config.workspace)
    except OwnerMustAct as error:
        yield refused(error)
        return
    if not context.live:
        yield Finding(Level.OK, f"synchronised with {address.place}; `doctor --live` tries it")
        return
    try:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "probe").write_bytes(_PROBE)
            store = ObjectStore(address, lambda: Rules.of(context.config.net.private_allow))
            asyncio.run(_probed(store, Path(folder, "probe")))
        yield Finding(Level.OK, f"synchronised with {address.place}, which works")
    except TryAgainLater as error:
        yield Finding(Level.FAIL, str(error), "`supaclaw config` changes the keys of workspace; docs/scale.md says how")


async def _probed(store: ObjectStore, probe: Path) -> None:
    name = hashlib.sha256(_PROBE).hexdigest()
    async with store:
        await store.put(name, probe)
        await store.fetch(name, len(_PROBE), probe)
        await store.delete(name)
