"""What a channel hands to the gateway: one thing that happened, in platform order."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from gateway.domain.ids import EntryId


@dataclass(frozen=True, slots=True)
class Address:
    """Where on a channel a conversation is held; `thread` is empty where the channel has none."""

    channel: str
    account: str
    chat: str
    thread: str = ""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent it, by the platform's own id."""

    id: str
    name: str
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class Earlier:
    """Something said before the conversation reached us, as a client of the API tells it."""

    role: Literal["user", "assistant", "system"]
    text: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file as the platform announces it; its bytes are fetched afterwards, through the channel it came by.

    `mime` and `size` (bytes) are what was claimed, "" and None where nothing was. `ref` means something to its channel
    only and stays good across restarts; at most 16 KB.
    """

    ref: str
    name: str = ""
    mime: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message, an edit or the press of a button, as the platform told it.

    `platform_id` is unique within (channel, account, chat): it is the key of de-duplication, so an edit has one of
    its own and names the message it replaces in `edits`. `addressed` is false for group talk that is not meant for
    the agent. A `solo` message gets a turn and an answer of its own instead of joining a running turn. `earlier` is
    taken over only where the address has no session yet; where its session does not hold just that, because somebody
    else has gone on with it, the message goes to the chat `fork` instead. Messages with the same `album` are one
    message that the platform cut up. `quoted` is what the message replies to, as its writer sees it. The press of a
    button is its value, said by whoever pressed it.
    """

    address: Address
    sender: Sender
    text: str
    platform_id: str
    sent_at: datetime
    edits: str | None = None
    private: bool = True
    addressed: bool = True
    solo: bool = False
    earlier: tuple[Earlier, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    album: str = ""
    quoted: str = ""
    fork: str | None = None


@dataclass(frozen=True, slots=True)
class Arrival:
    """An `Inbound` on its way in, under an id of our own: the journal has it before the database does."""

    id: EntryId
    inbound: Inbound
    at: datetime
