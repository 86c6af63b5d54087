"""Answers out beside plain messages: files, replies where the app may not write, and answers that grow in threads."""

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cachetools import LRUCache

from channels.slack.client import (
    BRIEF_SECONDS,
    CONNECT_SECONDS,
    Block,
    Client,
    SlackRefused,
    metadata,
    refusal,
    translated,
)
from channels.slack.facts import MAX_FACTS, CachedFacts, Threads
from channels.slack.markup import defused
from channels.slack.payloads import File, FileAnswer, Payload, Posted, Upload
from gateway.domain.channels.channel import FetchDelayed, FetchFailed, Outgoing, OutgoingFile, SendFailed
from gateway.domain.channels.platform import (
    PlatformError,
    TooFast,
    Unanswered,
    Undecidable,
    Unreachable,
    seconds_to_wait,
)
from gateway.domain.conversation.inbound import Address, Attachment
from gateway.domain.errors import TryAgainLater

if TYPE_CHECKING:
    from aiohttp import ClientResponse
    from cryptography.fernet import Fernet


_RETRIED_STATUSES = {401, 407, 408, 409, 420, 425}
_LOGIN_PAGE = "text/html"


class Files:
    """Files both ways. `facts` store the id of each file that is being sent, so that a crash doesn't send it twice.

    Bytes and token go only to Slack's own hosts, or to the configured one.
    """

    def __init__(self, client: Client, facts: CachedFacts) -> None:
        self._client = client
        self._facts = facts

    async def send(self, message: Outgoing, file: OutgoingFile, caption: str) -> str:
        """Send a file and return Slack's id of it; raises `PlatformError`, `SendFailed` and `TryAgainLater`."""
        begun = f"file {message.key}"
        if (id := self._facts.get(begun)) is None:
            id = await self._upload(file)
            await self._facts.put(begun, id)
        if not (message.again and await self._is_shown(id)):
            request = self._client.web.files_completeUploadExternal(
                files=[{"id": id, "title": file.name}],
                channel_id=message.address.chat,
                thread_ts=message.address.thread or None,
                initial_comment=caption or None,
            )
            await self._client.call(request, Payload)
        await self._facts.drop(begun)
        return id

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes from the current address of the file; raises `FetchFailed` or `FetchDelayed`."""
        name = attachment.name or "the file"
        try:
            file = await self._known(attachment.ref)
            if file.url_private_download is None or file.is_external:
                raise FetchFailed(f"{name} is not stored at Slack; download it where it is kept, and send that")
            token = {"Authorization": f"Bearer {self._client.bot_token}"}
            async with self.transfer("GET", file.url_private_download, headers=token) as response:
                if response.content_type == _LOGIN_PAGE and file.mimetype != _LOGIN_PAGE:
                    raise FetchFailed(f"Slack does not give {name} to the app; check that it has the scope files:read")
                async for piece in response.content.iter_chunked(64 * 1024):
                    yield piece
        except SlackRefused as error:
            raise FetchFailed(f"Slack does not give {name} to the app: {error}") from error
        except PlatformError as error:
            raise FetchDelayed(str(error)) from error

    async def _known(self, id: str) -> File:
        return (await self._client.call(self._client.web.files_info(file=id), FileAnswer)).file

    async def _is_shown(self, id: str) -> bool:
        try:
            return any((await self._known(id)).shares.values())
        except SlackRefused as error:
            raise Undecidable(f"can't tell whether it was shown: {error}") from error

    async def _upload(self, file: OutgoingFile) -> str:
        """Upload a file without showing it, so that any failure can be retried. The upload address is a secret."""
        request = self._client.web.files_getUploadURLExternal(filename=file.name, length=file.size)
        try:
            place = await self._client.call(request, Upload)
            with await asyncio.to_thread(Path(file.path).open, "rb") as data:
                async with self.transfer("POST", place.upload_url, data=data):
                    return place.file_id
        except Unanswered as error:
            raise Unreachable(str(error)) from error
        except OSError as error:
            raise SendFailed(f"{file.name} cannot be read: {error.strerror}") from error

    @asynccontextmanager
    async def transfer(self, method: str, url: str, **about: Any) -> AsyncIterator["ClientResponse"]:
        """Make a request outside the Web API. Redirects count as refusals, since the token would be sent along."""
        from aiohttp import ClientTimeout

        if not self._is_slack(url):
            raise SlackRefused("foreign_host", urlsplit(url).hostname or "")
        timeout = ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=60)
        about |= {"allow_redirects": False, "timeout": timeout, "proxy": self._client.web.proxy}
        with translated():
            async with self._client.http.request(method, url, **about) as response:
                if response.status != 200:
                    code = "" if response.status in _RETRIED_STATUSES else f"http_{response.status}"
                    raise refusal(response.status, code, "", seconds_to_wait(response.headers.get("Retry-After")))
                yield response

    def _is_slack(self, url: str) -> bool:
        parts = urlsplit(url)
        if self._client.base_url:
            own = urlsplit(self._client.base_url)
            return (parts.scheme, parts.netloc) == (own.scheme, own.netloc)
        host = parts.hostname or ""
        return parts.scheme == "https" and (host == "slack.com" or host.endswith(".slack.com"))


_NOT_A_MEMBER = {"channel_not_found", "not_in_channel"}
_REPLY_FACT = "reply "


class Replies:
    """Answers through `response_url`s, in chats where the app may not write. Each is good for 5 answers in 30 minutes.

    `facts` store the newest one of each chat. Anybody who has it may write there, so it is encrypted with a key that
    is derived from the bot token.
    """

    def __init__(self, files: Files, facts: CachedFacts, bot_token: str) -> None:
        self._files = files
        self._facts = facts
        self._bot_token = bot_token

    async def remember_url(self, at: Address, url: object) -> None:
        """Store the `response_url` of a command or a button press."""
        if isinstance(url, str) and url:
            await self._facts.note(_REPLY_FACT + at.chat, self._key().encrypt(url.encode()).decode())

    async def answer_by_url(self, refused: SlackRefused, at: Address, text: str, blocks: Sequence[Block]) -> None:
        """Show a text only to the person who waits there; raises `refused` if that is impossible, too."""
        url = self._address(at)
        if refused.code not in _NOT_A_MEMBER or url is None:
            raise refused
        shown = {"text": text, "unfurl_links": False, "unfurl_media": False} | ({"blocks": blocks} if blocks else {})
        try:
            async with self._files.transfer("POST", url, json=shown | {"response_type": "ephemeral"}):
                pass
        except SlackRefused:
            await self._facts.drop(_REPLY_FACT + at.chat)
            raise refused from None

    def _address(self, at: Address) -> str | None:
        """The `response_url` of a chat; None if there is none, or if it was encrypted with another token."""
        from cryptography.fernet import InvalidToken

        try:
            return self._key().decrypt(self._facts.get(_REPLY_FACT + at.chat) or "").decode()
        except InvalidToken:
            return None

    def _key(self) -> "Fernet":
        from cryptography.fernet import Fernet

        return Fernet(urlsafe_b64encode(sha256(f"supaclaw reply {self._bot_token}".encode()).digest()))


@dataclass(slots=True)
class _Stream:
    """One growing message. `shown` is its text so far, of which `before` is from earlier attempts.

    It is `growing` until Slack refuses more of it, and `sure` until an answer of Slack's is lost.
    """

    sure: bool
    turn: int = 0
    ts: str | None = None
    shown: str = ""
    before: str = ""
    growing: bool = True
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def missing(self, turn: int, text: str) -> str:
        """The text to append so that `text` is shown, at most the 12,000 characters that Slack accepts at once.

        Shown text can't be changed, so a text that doesn't continue it comes below it.
        """
        if turn != self.turn or not (self.before + text).startswith(self.shown):
            self.turn, self.before = turn, f"{self.shown}\n\n" if self.shown else ""
        return (self.before + text)[len(self.shown) : 12_000]


class Streams:
    """Answers that grow in threads. `facts` store where an unfinished message may be, and since when."""

    def __init__(self, client: Client, threads: Threads, facts: CachedFacts) -> None:
        self._client = client
        self._threads = threads
        self._facts = facts
        self._live: LRUCache[Address, _Stream] = LRUCache(MAX_FACTS)
        self._pause_until = 0.0

    async def grow(self, at: Address, turn: int, text: str) -> bool:
        """Show the answer so far; False if Slack accepts no more of it, for now or permanently.

        In a channel a message grows for one person only, so its reader must be known.
        """
        watched = at.thread and (at.chat.startswith("D") or self._threads.reader(at))
        if not watched or time.monotonic() < self._pause_until:
            return False
        stream = self._live.get(at) or _Stream(sure=self._facts.get(_stream_fact(at)) is None)
        self._live[at] = stream
        async with stream.lock:
            missing = stream.missing(turn, defused(text))
            if not stream.growing or not missing.strip():
                return stream.growing
            try:
                await self._append(at, stream, missing)
                stream.shown += missing
            except TooFast as error:
                self._pause_until = time.monotonic() + (error.retry_after or 1.0)
                return False
            except Unanswered:
                stream.growing = stream.sure = False
            except asyncio.CancelledError:
                stream.growing = stream.sure = False
                raise
            except SlackRefused:
                stream.growing = False
            except (PlatformError, TryAgainLater):
                return False
            return stream.growing

    async def finish(self, at: Address, markdown: str, rendered: str, key: str, blocks: Sequence[Block]) -> str | None:
        """Turn the growing message into the finished answer and return its id; None if none grew there.

        The rest of the text is appended if the answer continues the shown text, otherwise the text is replaced.
        """
        if (since := self._facts.get(_stream_fact(at))) is None:
            self._live.pop(at, None)
            return None
        stream, final = self._live.get(at) or _Stream(sure=False), defused(markdown)
        async with stream.lock:
            if (ts := await self._one_of(at, stream, since)) is not None:
                goes_on = stream.sure and stream.growing and not blocks and final.startswith(stream.shown)
                if not (goes_on and await self._end(at, ts, final[len(stream.shown) :], key)):
                    ts = await self._replace(at, ts, rendered, key, blocks)
        await self.forget(at)
        return ts

    def shows(self, at: Address) -> bool:
        """Whether a message grows there."""
        return at in self._live

    async def forget(self, at: Address) -> None:
        """Forget the growing message: its answer is complete."""
        self._live.pop(at, None)
        await self._facts.drop(_stream_fact(at))

    async def _append(self, at: Address, stream: _Stream, missing: str) -> None:
        web, reader = self._client.web, self._threads.reader(at) or None
        if stream.ts is not None:
            request = web.chat_appendStream(channel=at.chat, ts=stream.ts, markdown_text=missing)
            await self._client.call(request, Payload, BRIEF_SECONDS)
            return
        if self._facts.get(_stream_fact(at)) is None:
            await self._facts.put(_stream_fact(at), self._threads.newest(at))
        request = web.chat_startStream(
            channel=at.chat,
            thread_ts=at.thread,
            markdown_text=missing,
            recipient_team_id=at.account if reader else None,
            recipient_user_id=reader,
        )
        stream.ts = (await self._client.call(request, Posted, BRIEF_SECONDS)).ts

    async def _one_of(self, at: Address, stream: _Stream, since: str) -> str | None:
        """The message that becomes the answer; deletes other unfinished ones."""
        if stream.sure:
            return stream.ts
        left = await self._client.unfinished(at, since)
        for ts in left[:-1]:
            with suppress(SlackRefused):
                await self._client.delete(at, ts)
        return left[-1] if left else None

    async def _end(self, at: Address, ts: str, rest: str, key: str) -> bool:
        """Append the rest; returns whether Slack accepted it."""
        request = self._client.web.chat_stopStream(
            channel=at.chat, ts=ts, markdown_text=rest or None, metadata=metadata(key)
        )
        with suppress(SlackRefused):
            await self._client.call(request, Payload)
            return True
        return False

    async def _replace(self, at: Address, ts: str, text: str, key: str, blocks: Sequence[Block]) -> str | None:
        """Replace the text; None if the message is gone, or was deleted because it could not become this answer."""
        web = self._client.web
        with suppress(SlackRefused):
            await self._client.call(web.chat_stopStream(channel=at.chat, ts=ts), Payload)
        # a text alone removes the blocks that streaming added
        request = web.chat_update(
            channel=at.chat, ts=ts, text=text, blocks=blocks or None, metadata=metadata(key), parse="none"
        )
        with suppress(SlackRefused):
            await self._client.call(request, Posted)
            return ts
        with suppress(SlackRefused):
            await self._client.delete(at, ts)
        return None


def _stream_fact(at: Address) -> str:
    return f"stream {at.chat} {at.thread}"
