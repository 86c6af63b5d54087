"""An entry of the journal, and what arrived as one."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from gateway.domain.channels.routing import command_in
from gateway.domain.conversation.inbound import Address, Arrival, Inbound, Sender
from gateway.domain.ids import EntryId
from gateway.domain.text.texts import storable

Kind = Literal["message", "command", "edit", "user", "assistant", "tool_intent", "tool_result", "summary", "notice"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What was said once, and which files came with it. With `inbound` it can be stored again; else it copies a row."""

    id: EntryId
    kind: Kind
    at: datetime
    who: str
    text: str
    inbound: Inbound | None = None
    files: tuple[str, ...] = ()

    @property
    def arrival(self) -> Arrival | None:
        """What arrived, as the channel told it; None for a copy of a row."""
        return None if self.inbound is None else Arrival(self.id, self.inbound, self.at)


def entry_of(arrival: Arrival) -> Entry:
    """What arrived, before the database has it."""
    inbound = _storable(arrival.inbound)
    kind: Kind = "edit" if inbound.edits is not None else "command" if command_in(inbound)[0] else "message"
    files = tuple(attachment.name or "file" for attachment in inbound.attachments)
    who = f"{inbound.sender.name}, forwarded from {inbound.forwarded}" if inbound.forwarded else inbound.sender.name
    return Entry(arrival.id, kind, arrival.at, who, inbound.text, inbound, files)


def _storable(inbound: Inbound) -> Inbound:
    at, sender = inbound.address, inbound.sender
    return replace(
        inbound,
        address=Address(storable(at.channel), storable(at.account), storable(at.chat), storable(at.thread)),
        sender=Sender(storable(sender.id), storable(sender.name), sender.is_bot),
        text=storable(inbound.text),
        platform_id=storable(inbound.platform_id),
        edits=None if inbound.edits is None else storable(inbound.edits),
        earlier=tuple(replace(said, text=storable(said.text)) for said in inbound.earlier),
        attachments=tuple(
            replace(file, ref=storable(file.ref), name=storable(file.name), mime=storable(file.mime))
            for file in inbound.attachments
        ),
        album=storable(inbound.album),
        quoted=storable(inbound.quoted),
        quoted_id=storable(inbound.quoted_id),
        forwarded=storable(inbound.forwarded),
    )
