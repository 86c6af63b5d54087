"""`supaclaw memories forget ID --erase`: shows what would be removed, asks, and says what was."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.cli.console import echo
from gateway.cli.questions import confirm
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import MemoryId
from gateway.domain.text.texts import one_line
from gateway.logs import SecretMask, logging_to

if TYPE_CHECKING:
    from gateway.app.storage.erase import Found

_SHOWN, _WIDTH = 20, 150


def erase_for_good(memory: MemoryId, also: Sequence[str], *, yes: bool) -> None:
    """Erase a memory, if the owner agrees to what that comes to."""
    from gateway.app.storage.erase import erase

    if not (yes or sys.stdin.isatty()):
        raise OwnerMustAct("this permanently removes what was said; add --yes to confirm")
    environment = Environment.read(os.environ)
    config = load_early(environment, os.environ)
    receipt: list[str] = []

    def agree(found: "Found") -> None:
        receipt.extend(_receipt(found))
        if not yes:
            _show(found)
            confirm("Erase all of this permanently? It can't be restored.")

    with logging_to(None, SecretMask(), level=logging.WARNING):
        asyncio.run(erase(environment, config, memory, also, agree))
    echo("\n".join([f"erased: memory {memory}", *receipt]))


def _show(found: "Found") -> None:
    """The words, which the receipt does not repeat."""
    said = list(dict.fromkeys([*found.origins.memories.values(), *found.origins.messages.values()]))
    for text in said[:_SHOWN]:
        echo(f"“{one_line(text, _WIDTH)}”")
    if len(said) > _SHOWN:
        echo(f"… and {len(said) - _SHOWN} more")
    echo("\n".join(_receipt(found)))


def _receipt(found: "Found") -> list[str]:
    rows = ", ".join(f"{count} of {table}" for table, count in sorted(found.rows.items()))
    files = [f"{fate}: {path}" for path, fate in found.files]
    backups = [f"still in the backup of {saved}, unless that is deleted" for saved in found.backups]
    history = [f"checkpoints rewritten: {found.checkpoints}"] if found.checkpoints else []
    return [f"rows: {rows or 'none'}", *files, *history, *backups]
