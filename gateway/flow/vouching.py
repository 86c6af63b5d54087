"""Vouching: a person takes contents of their workspace for their own words, once and for exactly these bytes."""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from gateway.domain.clock import Clock
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json
from gateway.domain.people.access import GROUP
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection, Database
from gateway.store.people import principals
from gateway.store.trust import contents, reviews
from gateway.store.trust.reviews import Question
from gateway.workspace.files.pages import MOST
from gateway.workspace.files.paths import MAX_LEVELS, READ_ONLY, WorkspaceError, WorkspacePath
from gateway.workspace.files.states import measure
from gateway.workspace.files.uploads import UPLOADS
from gateway.workspace.template import template_hashes

VOUCH = "vouch_files"
"""The stored call that a yes runs, with `paths`: hashes by path."""
SHOWN = 60
"""Files that a question names."""


async def vouch(tx: Connection, principal: PrincipalId, paths: Mapping[str, str], label: Label) -> None:
    """Give exactly these contents (hashes by path) the label of the person who vouches for them."""
    for sha256 in paths.values():
        await contents.note(tx, principal, sha256, label, "owner")


async def ask(tx: Connection, principal: PrincipalId, paths: Mapping[str, str], clock: Clock) -> None:
    """Ask the person whether these contents are their own words, unless they were asked before, or are about to be."""
    arguments: dict[str, Json] = {"paths": dict(paths)}
    question = Question(principal, principal, VOUCH, arguments, _preview(paths), Label.UNTRUSTED, lasts=None)
    if principal not in await contents.with_older(tx) and not await reviews.asked(tx, question):
        await reviews.ask(tx, question, clock.now())


def _preview(paths: Mapping[str, str]) -> str:
    """What I follow comes first."""
    ordered = sorted(paths, key=lambda path: (not WorkspacePath.parse(path).is_instructions, path))
    lines = [f"- {path}" for path in ordered[:SHOWN]]
    more = [f"- and {len(ordered) - SHOWN:,} more"] if len(ordered) > SHOWN else []
    return "\n".join(
        [
            "I can't tell who wrote these files. Until you vouch for them, a conversation that reads one is treated as "
            "if a stranger wrote in it, and asks you before any lasting change:",
            *lines,
            *more,
            "If they're yours, say yes, then /new; to pick single files, run `supaclaw files vouch PATH`.",
        ]
    )


async def expect_older(database: Database, principal: PrincipalId, root: Path) -> None:
    """Before files come back that may have no label: what is there without one is the person's own, what comes is not.

    Until `list_older` has seen them.
    """
    here = await asyncio.to_thread(_hashes, root)

    async def work(tx: Connection) -> None:
        if principal not in await contents.with_older(tx):
            await contents.add(tx, principal, here.values(), Label.OWNER, "owner")
        await contents.expect_older(tx, principal)

    await database.run(work)


async def list_older(database: Database, root: Callable[[PrincipalId], Path], clock: Clock) -> None:
    """Label what workspaces hold from before there were labels, or from a backup, and ask whose it is, once.

    `root` says where somebody's files are.
    """
    async with database.connection() as conn:
        waiting = await contents.with_older(conn)
    for principal in waiting:
        found = await asyncio.to_thread(_hashes, root(principal))
        await database.run(partial(_list, principal=principal, found=found, clock=clock))


async def _list(tx: Connection, principal: PrincipalId, found: Mapping[str, str], clock: Clock) -> None:
    unlabelled = await contents.add(tx, principal, found.values(), Label.UNTRUSTED, "before")
    await contents.listed_older(tx, principal)
    asked = {path: sha256 for path, sha256 in found.items() if sha256 in unlabelled}
    identities = await principals.identities(tx, principal)
    if asked and not any(each.partition(":")[2].startswith(GROUP) for each in identities):  # there nobody is asked
        await ask(tx, principal, asked, clock)


def _hashes(root: Path) -> dict[str, str]:
    """The hash of every file a tool can read, by path; what others send, our own copies and template texts aside."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        if not inside.parts:
            folders[:] = [name for name in folders if name.casefold() not in {*READ_ONLY, UPLOADS}]
        if len(inside.parts) > MAX_LEVELS:
            folders.clear()
        for name in names:
            with suppress(WorkspaceError, OSError):
                file = measure(root, str(inside / name), MOST)
                found[file.path] = file.sha256
    harmless = template_hashes()
    return {path: sha256 for path, sha256 in found.items() if sha256 not in harmless}
