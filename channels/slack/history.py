"""Threads before the app was called into them: the root and the newest replies, whatever lies between."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate

from channels.slack.client import BRIEF_SECONDS, Client
from channels.slack.markup import readable
from channels.slack.payloads import MESSAGE_SUBTYPES, File, Message
from gateway.domain.channels.platform import PlatformError
from gateway.domain.conversation.inbound import Address

MAX_CHARS, MAX_LINE = 3_900, 1_600
"""Characters of a thread and of one message in a prompt: the newest always has room beside the root."""
MAX_FILES = 10
MAX_PAGES = 5
PAGE_MESSAGES = 999

Names = Callable[[Iterable[str]], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class ThreadSoFar:
    """The text, the id of the message if it is only one, and the files of the messages shown."""

    text: str = ""
    id: str = ""
    files: Sequence[File] = field(default=())


NO_THREAD = ThreadSoFar()


async def so_far(client: Client, at: Address, before: str, names_of: Names, *, private: bool) -> ThreadSoFar:
    """The thread before a message; empty if Slack doesn't answer at once.

    In a private chat a single message comes without a name and with its id.
    """
    earlier = [each for each in await _messages(client, at) if each.ts < before]
    if not (told := [each for each in earlier if each.whole and each.subtype in MESSAGE_SUBTYPES]):
        return NO_THREAD
    names = await names_of(message.user or "" for message in (told[0], *reversed(told[1:])))
    if private and len(told) == 1:
        return ThreadSoFar(readable(told[0].whole, names), told[0].ts, told[0].files)
    first, *lines = (_line(message, names) for message in told)
    sizes = accumulate(len(line) + 1 for line in reversed(lines))
    left_out = len(lines) - sum(size <= MAX_CHARS - len(first) - 50 for size in sizes)
    gap = [f"[… {left_out} messages left out here …]"] if left_out else []
    files = [file for each in (told[0], *told[1 + left_out :]) for file in each.files]
    return ThreadSoFar("\n".join([first, *gap, *lines[left_out:]]), "", files[:MAX_FILES])


async def _messages(client: Client, at: Address) -> list[Message]:
    """Those of the thread, oldest first, as far as Slack gives them within `BRIEF_SECONDS`."""
    found: dict[str, Message] = {}
    with suppress(PlatformError, TimeoutError):
        async with asyncio.timeout(BRIEF_SECONDS):
            async for page in client.pages(at, MAX_PAGES, BRIEF_SECONDS, limit=PAGE_MESSAGES):
                found |= {message.ts: message for message in page.messages}
    return [found[ts] for ts in sorted(found)]


def _line(message: Message, names: Mapping[str, str]) -> str:
    who = names.get(message.user or "", message.user or message.bot_id or "")
    text = f"{who}: {readable(message.whole, names)}"
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]} [… cut, {len(text)} characters]"
