"""What people did, in; accepted messages, out."""

import asyncio
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from channels.slack.client import BRIEF_SECONDS, Client
from channels.slack.errors import Refused
from channels.slack.events import SAID, Said
from channels.slack.kept import Threads, put_newest
from channels.slack.markup import readable
from channels.slack.payloads import Named, Page, Us
from gateway.domain.channels.channel import Accept
from gateway.domain.channels.platform import PlatformError
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.text.splitting import utf16_tail


class Intake:
    """What is said in one of the `threads` is meant for us without a mention."""

    def __init__(self, client: Client, threads: Threads, commands: Set[str], accept: Accept) -> None:
        self._client = client
        self._threads = threads
        self._commands = commands
        self._accept = accept
        self._names: dict[str, str] = {}
        self._zones: dict[str, str] = {}
        self._known: dict[tuple[str, str, bool], None] = {}

    async def take(self, said: Said | None) -> None:
        """Have it accepted. An edit that calls us is a message, too, and known by its id if it was one before."""
        if said is None:
            return
        us = await self._client.us()
        addressed = said.private or self._is_meant(said, us)
        put_newest(self._names, us.user_id, us.user)
        names = await self._names_of([said.sender, *said.people]) if addressed else {}
        new = addressed and said.continues and said.at not in self._threads
        thread = await self._so_far(said) if new else ("", "")
        inbound = said.inbound(us, names, self._commands, addressed=addressed, thread=thread)
        await self.accept_once(replace(inbound, zone=self._zones.get(said.sender, "") if said.private else ""))
        if said.calls(us):
            await self.take(replace(said, edited_at=None))
        elif addressed and said.message.bot_id is None and said.edited_at is None:
            await self._threads.heard(said.at, said.sender, said.message.ts)

    async def accept_once(self, inbound: Inbound) -> None:
        """A mention comes as two events, and whatever we acknowledged too late comes again."""
        known = (inbound.address.chat, inbound.platform_id, inbound.addressed)
        if known not in self._known:
            await self._accept([inbound])
            put_newest(self._known, known, None)

    def _is_meant(self, said: Said, us: Us) -> bool:
        """Our name; or, in a thread of ours, no other name."""
        return us.user_id in said.people or (not said.people and said.at in self._threads)

    async def _so_far(self, said: Said) -> tuple[str, str]:
        """What was said in a thread before we were called into it; nothing if Slack does not tell at once.

        In private the id comes with it if it is one message, which is ours or theirs and needs no name.
        """
        web, at = self._client.web, said.at
        try:
            request = web.conversations_replies(channel=at.chat, ts=at.thread, limit=999)
            page = await self._client.call(request, Page, BRIEF_SECONDS)
        except PlatformError:
            return "", ""
        told = [each for each in page.messages if each.ts < said.message.ts and each.text and each.subtype in SAID]
        names = await self._names_of(message.user or "" for message in reversed(told))
        if said.private and len(told) == 1:
            return utf16_tail(readable(told[0].text, names), 1000), told[0].ts
        lines = (
            f"{names.get(message.user or '', message.user or message.bot_id)}: {readable(message.text, names)}"
            for message in told
        )
        return utf16_tail("\n".join(lines), 1000), ""

    async def _names_of(self, users: Iterable[str]) -> Mapping[str, str]:
        """Names by id, each asked for once; nothing waits long for a name: without one the id has to do."""
        wanted = list(dict.fromkeys(filter(None, users)))[:20]
        await asyncio.gather(*(self._ask(user) for user in wanted if user not in self._names))
        return {user: self._names[user] for user in wanted if user in self._names}

    async def _ask(self, user: str) -> None:
        try:
            found = await self._client.call(self._client.web.users_info(user=user), Named, BRIEF_SECONDS)
            name = found.display_name or found.real_name or found.name or ""
            put_newest(self._zones, user, found.zone or "")
        except Refused:
            name = ""
        except PlatformError:
            return
        put_newest(self._names, user, " ".join(name.split())[:80] or user)
