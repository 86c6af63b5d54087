"""Files from before there were labels, or from a backup: labelled once, and listed in a question to their person."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import structlog

from gateway.domain.clock import Clock
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.vouching import ask
from gateway.store import contents
from gateway.store.pool import Connection, Database
from gateway.workspace.incoming import UPLOADS
from gateway.workspace.measure import measure
from gateway.workspace.paths import READ_ONLY, WorkspaceError

log = structlog.get_logger(__name__)


async def list_older(database: Database, environments: AgentEnvironments, clock: Clock) -> None:
    """Label what workspaces hold from before there were labels, or from a backup, and ask whose it is, once."""
    async with database.connection() as conn:
        principals = await contents.with_older(conn)
    for principal in principals:
        workspace, own = environments.of(principal).workspace, environments.own_label(principal)
        found = await asyncio.to_thread(_hashes, workspace.root)
        unlabelled = {path: sha256 for path, sha256 in found.items() if sha256 not in environments.harmless}
        await database.run(partial(_list, principal=principal, paths=unlabelled, own=own, clock=clock))
        log.info("files.listed", principal=str(principal), files=len(found))


async def _list(tx: Connection, principal: PrincipalId, paths: Mapping[str, str], own: Label, clock: Clock) -> None:
    await contents.distrust(tx, principal, paths.values(), "before")
    doubtful = await contents.above(tx, principal, paths.values(), own)
    if asked := {path: sha256 for path, sha256 in paths.items() if sha256 in doubtful}:
        await ask(tx, principal, asked, clock)
    await contents.listed_older(tx, principal)


def _hashes(root: Path) -> dict[str, str]:
    """The hash of every file a tool can read, by path; what others send, and our own copies, have labels by place."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        if not inside.parts:
            folders[:] = [name for name in folders if name.casefold() not in {*READ_ONLY, UPLOADS}]
        for name in names:
            with suppress(WorkspaceError, OSError):
                file = measure(root, str(inside / name), 2**63)
                found[file.path] = file.sha256
    return found
