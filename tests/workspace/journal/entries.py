"""Entries to write down."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from gateway.domain.conversation.inbound import Address, Arrival, Inbound, Sender
from gateway.domain.ids import EntryId
from gateway.workspace.journal.entries import JournalEntry, entry_of

KEY = b"k" * 32
AT = datetime(2026, 3, 1, 12, 30, 15, 250_000, tzinfo=UTC)


def arrival(text: str = "hello", *, name: str = "Ada", id: str = "m1", **more: Any) -> Arrival:
    inbound = Inbound(
        Address("fake", "bot", "1"), Sender("1", name), text, id, AT, **{"private": True, "as_owner": True, **more}
    )
    return Arrival(EntryId(uuid4()), inbound, AT)


def arrived(text: str = "hello", **more: Any) -> JournalEntry:
    return entry_of(arrival(text, **more))


def said(text: str = "re: hello") -> JournalEntry:
    return JournalEntry(EntryId(uuid4()), "assistant", AT, "SupaClaw", text)
