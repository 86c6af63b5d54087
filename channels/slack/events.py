"""Slack's events → messages, accepted in order, with names looked up and addressed ones recognised."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from cachetools import LRUCache
from pydantic import BaseModel, ValidationError

from channels.slack.client import BRIEF_SECONDS, Client, SlackRefused
from channels.slack.content import beside
from channels.slack.facts import MAX_FACTS, Threads
from channels.slack.history import NO_THREAD, ThreadSoFar, so_far
from channels.slack.markup import mentioned, readable, without_mention
from channels.slack.payloads import UNREADABLE, Action, AppAccount, File, Message, MessageEvent, UserNames
from gateway.domain.channels.channel import Accept
from gateway.domain.channels.platform import PlatformError
from gateway.domain.channels.routing import parse_command
from gateway.domain.conversation.inbound import Address, Attachment, Inbound, Sender
from gateway.domain.text.texts import one_line

EDIT_SUBTYPE, DELETED_SUBTYPE, TOMBSTONE = "message_changed", "message_deleted", "tombstone"
"""Changes of a message; the deleted root of a thread with replies is changed to a tombstone."""
CHANGES = frozenset({EDIT_SUBTYPE, DELETED_SUBTYPE})

Model = TypeVar("Model", bound=BaseModel)


class UnreadableEvent(ValueError):
    """The event differs from Slack's documentation; the text says where."""


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message or an edit, its text in Slack's markup. An edit has `edited_at`.

    A deletion has the `edited_at` of its event, and the deleted message.
    """

    at: Address
    private: bool
    message: Message
    edited_at: str | None = None
    deleted: bool = False

    @property
    def sender(self) -> str:
        """The id of the person or bot that wrote it."""
        return self.message.user or self.message.bot_id or ""

    @property
    def people(self) -> tuple[str, ...]:
        """The ids of the people that it mentions."""
        return mentioned(self.message.text)

    @property
    def added(self) -> str:
        """Additions to the text, in markup: tables, previews, what an app shows, and Slack's transcripts."""
        message = self.message
        cards = (each.whole for each in message.attachments if not (each.is_share or each.is_msg_unfurl))
        heard = (f"Slack's transcript of {file.name}: {file.transcript}" for file in message.files if file.transcript)
        gone = (f"[file {each.name}: Slack no longer has it; send it again]" for each in message.files if each.is_gone)
        kept = (f"{each.name} is kept at {each.kept_at}" for each in message.files if each.is_external)
        return "\n\n".join(filter(None, (beside(message.text, message.blocks), *cards, *heard, *gone, *kept)))

    def inbound(
        self,
        account: AppAccount,
        names: Mapping[str, str],
        commands: Set[str],
        *,
        addressed: bool,
        thread: ThreadSoFar = NO_THREAD,
    ) -> Inbound:
        """The message with names instead of ids, after its `thread` so far.

        Only an addressed message can be a command. A shared message without a text of its own counts as forwarded.
        """
        message = self.message
        text = readable(without_mention(message.text, account.user_id) if addressed else message.text, names)
        if addressed:
            text = as_command(text, commands)
        elif text.startswith("/"):
            text = f" {text}"
        shared = [quote for quote in message.attachments if quote.is_share or quote.is_msg_unfurl]
        passed_on = "\n\n".join(readable(quote.whole, names) for quote in shared)
        source = ", ".join(dict.fromkeys(one_line(quote.author_name, 64) or "somebody" for quote in shared))
        quote = (f"Forwarded from {source}:\n{passed_on}", "") if shared and text.strip() else (thread.text, thread.id)
        return Inbound(
            address=self.at,
            sender=Sender(self.sender, names.get(self.sender, self.sender), is_bot=message.bot_id is not None),
            text=text if text.strip() else passed_on or UNREADABLE * bool(message.blocks and not self.added),
            platform_id=f"{message.ts}:{self.edited_at}" if self.edited_at else message.ts,
            sent_at=datetime.fromtimestamp(float(message.edited_at or message.ts), UTC),
            edits=message.ts if self.edited_at else None,
            private=self.private,
            as_owner=True,
            addressed=addressed,
            attachments=_attachments((*message.files, *(file for quote in shared for file in quote.files))),
            quoted_files=_attachments(thread.files),
            quoted=quote[0],
            quoted_id=quote[1],
            forwarded="" if text.strip() else source,
            added=readable(self.added, names),
        )


def _attachments(files: Sequence[File]) -> tuple[Attachment, ...]:
    kept = (file for file in files if not file.is_gone)
    return tuple(Attachment(file.id, file.name.replace("\0", ""), file.mimetype, file.size) for file in kept)


def as_command(text: str, commands: Set[str]) -> str:
    """`!new` → `/new`: Slack itself handles texts that begin with a slash."""
    command = f"/{text[1:]}"
    return command if text.startswith("!") and parse_command(command)[0] in commands else text


def _parsed(model: type[Model], raw: object) -> Model:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise UnreadableEvent(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def read_message(raw: object, account: AppAccount) -> SentMessage | None:
    """The message in an event; None if nobody wrote one, such as for a link preview. Raises `UnreadableEvent`."""
    event = _parsed(MessageEvent, raw)
    is_edit = event.subtype == EDIT_SUBTYPE
    message, before = (event.message, event.previous_message) if is_edit else (event, None)
    deleted = event.subtype == DELETED_SUBTYPE or (message is not None and message.subtype == TOMBSTONE)
    if deleted:
        message = event.previous_message
    if message is None or not (message.user or message.bot_id):
        return None
    if is_edit and not deleted and (message.edited_at is None or (before is not None and before.text == message.text)):
        return None
    private = event.channel_type == "im" or event.channel.startswith("D")
    thread = message.thread_ts or event.thread_ts or ("" if private else message.ts)
    at = Address("slack", account.team_id, event.channel, thread)
    changed_at = event.ts if deleted else message.edited_at if is_edit else None
    return SentMessage(at, private, message, changed_at, deleted=deleted)


def read_action(raw: object, account: AppAccount, commands: Set[str]) -> Inbound:
    """A command or a button press: `/claw new` is /new, `/claw how are you` a message, a press says its value."""
    told = _parsed(Action, raw)
    text = readable(told.text, {}).strip() if told.command else told.text
    typed = as_command(f"!{(text or 'help').lstrip('!/')}", commands) if told.command else ""
    return Inbound(
        address=Address("slack", account.team_id, told.channel_id, told.thread_ts or ""),
        sender=Sender(told.user_id, told.user_name or told.user_id),
        text=typed if typed.startswith("/") else text,
        platform_id=f"action:{told.trigger_id}",
        sent_at=datetime.now(UTC),
        private=told.channel_id.startswith("D") or told.channel_name == "directmessage",
        as_owner=True,
    )


class Intake:
    """Reads messages and has them accepted. In one of the `threads` they need no mention of the app."""

    def __init__(self, client: Client, threads: Threads, commands: Set[str], accept: Accept) -> None:
        self._client = client
        self._threads = threads
        self._commands = commands
        self._accept = accept
        self._names: LRUCache[str, str] = LRUCache(MAX_FACTS)
        self._zones: LRUCache[str, str] = LRUCache(MAX_FACTS)
        self._known: LRUCache[tuple[str, str, bool], bool] = LRUCache(MAX_FACTS)

    async def take(self, said: SentMessage | None) -> None:
        """Have a message accepted. An edit addresses the app only by its mention."""
        if said is None:
            return
        account = await self._client.account()
        addressed = said.private or account.user_id in said.people or (not said.people and said.at in self._threads)
        self._names[account.user_id] = account.user
        names = await self._names_of([said.sender, *said.people]) if addressed else {}
        new = not said.deleted and (said.edited_at is None or account.user_id in said.people)
        thread = NO_THREAD
        if addressed and new and said.message.thread_ts not in {None, said.message.ts} and said.at not in self._threads:
            thread = await so_far(self._client, said.at, said.message.ts, self._names_of, private=said.private)
        inbound = said.inbound(account, names, self._commands, addressed=addressed, thread=thread)
        if said.deleted:
            inbound = replace(inbound, text="", quoted="", attachments=(), forwarded="", deleted=True)
        zone = self._zones.get(said.sender, "") if said.private else ""
        await self.accept_once(replace(inbound, addressed=addressed and new, zone=zone))
        if addressed and new and said.message.bot_id is None:
            await self._threads.heard(said.at, said.sender, said.message.ts)

    async def accept_once(self, inbound: Inbound) -> None:
        """Have a message accepted once: a mention comes as two events, and a late acknowledgement repeats an event."""
        known = (inbound.address.chat, inbound.platform_id, inbound.addressed)
        if known not in self._known:
            await self._accept([inbound])
            self._known[known] = True

    async def _names_of(self, users: Iterable[str]) -> Mapping[str, str]:
        """The names of at most 20 people by id, each requested once; a name that doesn't come quickly is left out."""
        wanted = list(dict.fromkeys(filter(None, users)))[:20]
        await asyncio.gather(*(self._ask(user) for user in wanted if user not in self._names))
        return {user: self._names[user] for user in wanted if user in self._names}

    async def _ask(self, user: str) -> None:
        try:
            found = await self._client.call(self._client.web.users_info(user=user), UserNames, BRIEF_SECONDS)
            name = found.display_name or found.real_name or found.name or ""
            self._zones[user] = found.zone or ""
        except SlackRefused:
            name = ""
        except PlatformError:
            return
        self._names[user] = " ".join(name.split())[:80] or user
