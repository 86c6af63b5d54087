"""Entries: the rows a journal's file is a copy of, and what the database has of what is in the files."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.domain.ids import EntryId, JournalId
from gateway.domain.inbound import Inbound
from gateway.store.pool import Connection

CLIPPED = 4_000
"""Characters of a tool's call or result that are copied."""

Kind = Literal["user", "assistant", "tool_intent", "tool_result", "summary", "notice", "command", "edit"]


@dataclass(frozen=True, slots=True)
class Line:
    """A row to copy: a message, or a command or an edit that arrived; `id` counts within its table."""

    id: int
    arrived: bool
    entry_id: EntryId
    kind: Kind
    at: datetime
    who: str
    text: str
    length: int


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a file is copied: the last message and the last arrival."""

    message: int = 0
    arrival: int = 0


async def adopt(tx: Connection, journal: JournalId, entries: Sequence[EntryId]) -> None:
    """Take in commands and edits that arrived before the file was opened."""
    await tx.execute(
        "update inbox set journal_id = $1 where entry_id = any($2) and journal_id is null and kind <> 'message'",
        journal,
        list(entries),
    )


async def lines(conn: Connection, journal: JournalId, after: Mark) -> list[Line]:
    """What the file should hold after this mark; tool calls and results cut, `length` being that of the whole."""
    said = await conn.fetch(
        """select id, false as arrived, entry_id, kind, created_at as at,
                  case when kind in ('tool_intent', 'tool_result') then coalesce(tool, '') else sender end as who,
                  case when kind in ('tool_intent', 'tool_result') then left(text, $3) else text end as text,
                  length(text) as length
           from messages where journal_id = $1 and id > $2 order by id""",
        journal,
        after.message,
        CLIPPED,
    )
    arrived = await conn.fetch(
        """select id, true as arrived, entry_id, kind, received_at as at, '' as who, text, length(text) as length
           from inbox where journal_id = $1 and id > $2 and kind in ('command', 'edit') order by id""",
        journal,
        after.arrival,
    )
    # By time, but never against the order within a table: a row's time is when its transaction began.
    return [Line(**row) for row in heapq.merge(said, arrived, key=lambda row: row["at"])]


async def known(conn: Connection, arrivals: Sequence[tuple[EntryId, Inbound]]) -> set[EntryId]:
    """Which of these the database has: under their own id, or under another as the same thing on the platform."""
    rows = await conn.fetch(
        """select a.id from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])
             as a (id, channel, account, chat, platform_id)
           where exists (select from inbox i where i.entry_id = a.id)
              or exists (select from inbox i where (i.channel, i.account, i.chat, i.platform_id)
                         = (a.channel, a.account, a.chat, a.platform_id))""",
        [entry for entry, _ in arrivals],
        [inbound.address.channel for _, inbound in arrivals],
        [inbound.address.account for _, inbound in arrivals],
        [inbound.address.chat for _, inbound in arrivals],
        [inbound.platform_id for _, inbound in arrivals],
    )
    return {EntryId(row["id"]) for row in rows}
