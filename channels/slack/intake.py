"""Envelopes in, accepted messages out."""

import asyncio
from collections.abc import Iterable, Mapping, Set
from typing import assert_never

from channels.slack.client import BRIEF_SECONDS, Client
from channels.slack.errors import Recovery, Refused, SlackError
from channels.slack.events import SAID, Said, Unreadable, read
from channels.slack.kept import Threads, put_newest
from channels.slack.markup import readable
from channels.slack.payloads import Assistant, Envelope, Named, Page, Us
from gateway.domain.channel import Accept
from gateway.domain.errors import SupaclawError
from gateway.domain.inbound import Inbound
from gateway.domain.logging import Logger
from gateway.domain.splitting import utf16_tail

PROMPTS = [
    {"title": title, "message": message}
    for title, message in (
        ("What can you do?", "What can you do for me?"),
        ("Sum up a file", "Sum up the file that I am going to send."),
        ("Where were we?", "Where did we leave off, and what is still open?"),
    )
]
"""What Slack's assistant offers in a new conversation."""


class Intake:
    """Reads envelopes one after another, skips what cannot be read, and has the rest accepted in order.

    What is said in one of the `threads` is meant for us without a mention.
    """

    def __init__(
        self, client: Client, threads: Threads, commands: Set[str], accept: Accept, recovery: Recovery, log: Logger
    ) -> None:
        self._client = client
        self._threads = threads
        self._commands = commands
        self._accept = accept
        self._recovery = recovery
        self._logger = log
        self._names: dict[str, str] = {}
        self._known: dict[tuple[str, str], None] = {}

    async def take(self, envelope: Envelope) -> bool:
        """Whether it may be acknowledged: it was committed, or there is nothing in it for us.

        What cannot be accepted now holds up what follows, so that the order is kept; what makes us stumble does not,
        and Slack delivers it again.
        """
        while True:
            try:
                await self._take(envelope)
            except Unreadable as error:
                self._logger.warning("slack.event_skipped", envelope=envelope.envelope_id, why=str(error))
            except SupaclawError as error:
                await self._recovery.after(error)
                continue
            except Exception:
                self._logger.exception("slack.event_failed", envelope=envelope.envelope_id)
                return False
            self._recovery.over()
            return True

    async def _take(self, envelope: Envelope) -> None:
        us = await self._client.us()
        happened = read(envelope, us, self._commands)
        match happened:
            case Said():
                await self._take_words(happened, us)
            case Assistant(channel_id=channel, thread_ts=thread):
                web = self._client.web
                await self._client.attempt(
                    web.assistant_threads_setSuggestedPrompts(channel_id=channel, thread_ts=thread, prompts=PROMPTS)
                )
            case Inbound():
                await self._accept_once(happened)
            case None:
                pass
            case _:
                assert_never(happened)

    async def _take_words(self, said: Said, us: Us) -> None:
        addressed = said.private or self._is_meant(said, us)
        put_newest(self._names, us.user_id, us.user)
        names = await self._names_of([said.sender, *said.people]) if addressed else {}
        thread = await self._so_far(said) if addressed and said.continues and said.at not in self._threads else ""
        await self._accept_once(said.inbound(us, names, self._commands, addressed=addressed, thread=thread))
        if addressed and said.message.bot_id is None and said.edited_at is None:
            self._threads.heard(said.at, said.sender, said.message.ts)

    def _is_meant(self, said: Said, us: Us) -> bool:
        """Our name; or, in a thread of ours, no other name."""
        return us.user_id in said.people or (not said.people and said.at in self._threads)

    async def _so_far(self, said: Said) -> str:
        """What was said in a thread before we were called into it; nothing if Slack does not tell at once."""
        web, at = self._client.web, said.at
        try:
            request = web.conversations_replies(channel=at.chat, ts=at.thread, limit=999)
            page = await self._client.call(request, Page, BRIEF_SECONDS)
        except SlackError:
            return ""
        told = [each for each in page.messages if each.ts < said.message.ts and each.text and each.subtype in SAID]
        names = await self._names_of(message.user or "" for message in reversed(told))
        lines = (
            f"{names.get(message.user or '', message.user or message.bot_id)}: {readable(message.text, names)}"
            for message in told
        )
        return utf16_tail("\n".join(lines), 1000)

    async def _accept_once(self, inbound: Inbound) -> None:
        """A mention comes as two events, and whatever we acknowledged too late comes again."""
        known = (inbound.address.chat, inbound.platform_id)
        if known not in self._known:
            await self._accept([inbound])
            put_newest(self._known, known, None)

    async def _names_of(self, users: Iterable[str]) -> Mapping[str, str]:
        """Names by id, each asked for once; nothing waits long for a name: without one the id has to do."""
        wanted = list(dict.fromkeys(filter(None, users)))[:20]
        await asyncio.gather(*(self._ask(user) for user in wanted if user not in self._names))
        return {user: self._names[user] for user in wanted if user in self._names}

    async def _ask(self, user: str) -> None:
        try:
            found = await self._client.call(self._client.web.users_info(user=user), Named, BRIEF_SECONDS)
            name = found.display_name or found.real_name or found.name or ""
        except Refused:
            name = ""
        except SlackError:
            return
        put_newest(self._names, user, " ".join(name.split())[:80] or user)
