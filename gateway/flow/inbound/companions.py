"""Companions: the files and forwards in a group that belong to a message which names the agent, but don't name it."""

from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from cachetools import LRUCache

from gateway.domain.conversation.inbound import Address, Inbound

MAX_REMEMBERED = 1_000
MAX_HELD = 50
"""Parts of one sender that wait for a message which names the agent."""
TOGETHER = timedelta(seconds=2)
"""Between parts of one thought; an app sends them at once, and some platforms give whole seconds."""

_Key: TypeAlias = tuple[Address, str]


class Companions:
    """Completes addressed messages with what their sender sent at the same moment.

    It is kept in memory only: the rest of what a group says is never stored.
    """

    def __init__(self) -> None:
        self._addressed: LRUCache[_Key, Inbound] = LRUCache(MAX_REMEMBERED)
        self._albums: LRUCache[tuple[Address, str], bool] = LRUCache(MAX_REMEMBERED)
        self._held: LRUCache[_Key, tuple[Inbound, ...]] = LRUCache(MAX_REMEMBERED)

    def complete(self, inbound: Inbound) -> tuple[Inbound, ...]:
        """The message, behind earlier parts that it makes addressed; itself addressed if it belongs to one that is."""
        if inbound.private or inbound.edits is not None:
            return (inbound,)
        who = inbound.address, inbound.sender.id
        if inbound.addressed:
            return (*self._earlier(who, inbound), inbound)
        if not (inbound.album or inbound.forwarded or inbound.attachments):
            return (inbound,)
        named = self._addressed.get(who)
        if (named is not None and _together(named, inbound)) or (inbound.address, inbound.album) in self._albums:
            return (replace(inbound, addressed=True),)
        self._held[who] = (*self._held.get(who, ()), inbound)[-MAX_HELD:]
        return (inbound,)

    def _earlier(self, who: _Key, inbound: Inbound) -> tuple[Inbound, ...]:
        """Kept, because a message that can't be stored comes again without them; stored ones are recognised."""
        self._addressed[who] = inbound
        if inbound.album:
            self._albums[inbound.address, inbound.album] = True
        return tuple(replace(part, addressed=True) for part in self._held.get(who, ()) if _together(part, inbound))


def _together(one: Inbound, other: Inbound) -> bool:
    return (one.album == other.album != "") or abs(one.sent_at - other.sent_at) <= TOGETHER
