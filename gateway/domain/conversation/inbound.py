"""The input of a channel: one message, edit or button press, with an API client's options."""

import json
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Literal, Self
from uuid import UUID

from gateway.domain.conversation import digest
from gateway.domain.conversation.model import ToolCall, ToolSpec
from gateway.domain.conversation.transcript import ToolResult
from gateway.domain.ids import EntryId, PrincipalId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Tools that the program runs itself, and what it asks of the answer.

    `must_call` is the tool that has to be called, "" for any, None for none. `answer_format` is OpenAI's
    `response_format`, None for plain text.
    """

    tools: tuple[ToolSpec, ...] = ()
    must_call: str | None = None
    answer_format: JsonObject | None = None
    agent: str = ""
    """Slug of the agent that is asked; "" for the one that people chat with."""

    def to_json(self) -> str:
        """As it is stored."""
        return storable(json.dumps(asdict(self), ensure_ascii=False))

    @classmethod
    def of(cls, stored: str | None, label: Label) -> Self:
        """As `to_json` wrote it, in words of this label; None is nothing."""
        if stored is None:
            return cls()
        fields = json.loads(stored)
        return cls(tuple(ToolSpec(**{**tool, "label": label}) for tool in fields.pop("tools")), **fields)


NO_OPTIONS = ClientOptions()


@dataclass(frozen=True, slots=True)
class ClientInput:
    """An API client's part of one message: `options` as JSON, and results of the calls that it was handed."""

    options: str | None = None
    results: tuple[ToolResult, ...] = ()


LOCAL = "local"
"""The account of the local token, which is the owner's own."""
PROGRAMS = frozenset({"api", "terminal"})
"""The channels that are reached with API tokens."""
OWN_CHANNELS = PROGRAMS | {"web"}
TEMPORARY = "temporary-"
"""How the threads of the page's temporary chats begin."""
"""Reached only with a credential of ours, whose person reads the transcript itself: the owner's, else a member's."""
MEMBER = "member:"
"""Prefix of a sender's id on these channels if the credential is a member's."""


@dataclass(frozen=True, slots=True)
class Address:
    """The place of a conversation on a channel; `thread` is empty if the channel has no threads."""

    channel: str
    account: str
    chat: str
    thread: str = ""

    @property
    def by_token(self) -> bool:
        """Whether a program writes here with an API token, whatever that is worth; the local token is none."""
        return self.channel in PROGRAMS and self.account != LOCAL

    @property
    def temporary(self) -> bool:
        """Whether its person wants nothing to outlive what is said here."""
        return self.channel == "web" and self.thread.startswith(TEMPORARY)


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a message, by the platform's id."""

    id: str
    name: str
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class Earlier:
    """A message from before the conversation reached us, as reported by an API client.

    `calls` are the assistant's calls of the client's tools; a tool's text is the result of `call_id`.
    """

    role: Literal["user", "assistant", "system", "tool"]
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""

    @property
    def told(self) -> digest.Told:
        """As it counts for the digest of a conversation."""
        return self.role, f"{self.call_id} {self.text}" if self.role == "tool" else digest.said(self.text, self.calls)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file as announced by the platform; its bytes are fetched later, through its channel.

    `mime` and `size` (bytes) are the platform's claims, "" and None if it made none. `ref` is opaque to all but its
    channel and stays valid across restarts; at most 16 KB.
    """

    ref: str
    name: str = ""
    mime: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message, an edit or the press of a button, as reported by the platform.

    `platform_id` is unique within (channel, account, chat) and is the key of de-duplication, so an edit has its own
    and names the message it replaces in `edits`. `addressed` is false for group messages not meant for the agent. A
    `solo` message gets its own turn and answer instead of joining a running turn. `earlier` is stored only if the
    address has no session yet; if its session holds something else, because another client continued it, the message
    goes to the chat `fork` instead. Messages with the same `album` are one message that the platform split. `quoted` is
    the text of the message replied to, as its sender sees it, and `quoted_id` its platform id ("": of another chat).
    `forwarded` is where a text that its sender only passed on comes from, in words for the agent ("" if they wrote it
    themselves). A button press is its value, sent by the person who pressed it. `as_owner` is false for what a program
    says with a token: it is trusted as known at most, and is not a command of the owner. `client` is what a program
    sent along.
    `quoted_files` are those of the message replied to. `deleted` says that the message named in `edits` was deleted.
    `added` is what the platform or an app put beside their words: targets of links, previews, transcripts.
    `zone` is the sender's time zone as the platform knows it ("" if it doesn't tell): never more than an offer.
    """

    address: Address
    sender: Sender
    text: str
    platform_id: str
    sent_at: datetime
    edits: str | None = None
    private: bool = field(kw_only=True)
    addressed: bool = True
    solo: bool = False
    earlier: tuple[Earlier, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    album: str = ""
    quoted: str = ""
    quoted_id: str = ""
    quoted_files: tuple[Attachment, ...] = ()
    forwarded: str = ""
    added: str = ""
    as_owner: bool = field(kw_only=True)
    fork: str | None = None
    client: ClientInput | None = None
    zone: str = ""
    deleted: bool = False

    @property
    def member(self) -> PrincipalId | None:
        """The member whose credential it came with; None if it came by a platform or with the owner's."""
        theirs = self.address.channel in OWN_CHANNELS and self.sender.id.startswith(MEMBER)
        return PrincipalId(UUID(self.sender.id.removeprefix(MEMBER))) if theirs else None


@dataclass(frozen=True, slots=True)
class Arrival:
    """An `Inbound` with our own id, since the journal stores it before the database does.

    `followed` says that another message of its chat came together with it.
    """

    id: EntryId
    inbound: Inbound
    at: datetime
    followed: bool = False
