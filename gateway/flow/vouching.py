"""Vouching: a person takes contents of their workspace for their own words, once and for exactly these bytes."""

from collections.abc import Mapping

from gateway.domain.clock import Clock
from gateway.domain.ids import PrincipalId
from gateway.domain.json import Json
from gateway.domain.principals import Label
from gateway.domain.texts import printable
from gateway.store import contents, reviews
from gateway.store.pool import Connection
from gateway.store.reviews import Question
from gateway.workspace.paths import WorkspacePath

VOUCH = "vouch_files"
"""The stored call that a yes runs, with `paths`: hashes by path."""
SHOWN = 60
"""Files that a question names."""


async def vouch(tx: Connection, principal: PrincipalId, paths: Mapping[str, str], label: Label) -> None:
    """Give exactly these contents (hashes by path) the label of the person who vouches for them."""
    for sha256 in paths.values():
        await contents.note(tx, principal, sha256, label, "owner")


async def ask(tx: Connection, principal: PrincipalId, paths: Mapping[str, str], clock: Clock) -> None:
    """Ask the person whether these contents are their own words, unless they were asked before."""
    arguments: dict[str, Json] = {"paths": dict(paths)}
    question = Question(principal, principal, VOUCH, arguments, _preview(paths), Label.UNTRUSTED, lasts=None)
    if not await reviews.asked(tx, question):
        await reviews.ask(tx, question, clock.now())


def _preview(paths: Mapping[str, str]) -> str:
    """What I follow comes first."""
    ordered = sorted(paths, key=lambda path: (not WorkspacePath.parse(path).is_instructions, path))
    lines = [f"- {printable(path, keep='')}" for path in ordered[:SHOWN]]
    more = [f"- and {len(ordered) - SHOWN:,} more"] if len(ordered) > SHOWN else []
    return "\n".join(
        [
            "I cannot tell who wrote these files. Until you vouch for them, a conversation that reads one counts as "
            "one in which a stranger wrote, and asks you before it changes anything that lasts:",
            *lines,
            *more,
            "If they are yours, say yes, then /new; for single ones run `supaclaw files vouch PATH`.",
        ]
    )
